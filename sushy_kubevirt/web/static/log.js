// SPDX-License-Identifier: Apache-2.0
// The event log of a machine: live, with a filter.

import {button, confirm, fill, h, problem, say, select, time} from './dom.js';
import {listen} from './events.js';
import {get, may, members, post} from './redfish.js';
import {t} from './texts.js';
import {Heading, concerns, here, once, setParam} from './view.js';

/** Rows that are drawn at first, and with each "Show more". */
const ROWS = 200;

/** Show the log. */
export async function open(view, context) {
  const heading = new Heading(context, 'log');
  await heading.refresh();
  const services = heading.system.LogServices?.['@odata.id'];
  if (!services) {
    fill(view, heading.element, h('p', {}, t('noLog')));
    return undefined;
  }
  const service = (await members(services))[0];
  const clear = service.Actions?.['#LogService.ClearLog']?.target;
  const {params} = here();
  let entries = [];
  let read = '';
  let rows = ROWS;

  const search = h('input', {type: 'search', id: 'search',
    value: params.get('q') || '', 'aria-label': t('search'),
    placeholder: t('searchHint'), input: () => {
      setParam('q', search.value.trim());
      draw();
    }});
  const severity = select([['', t('anySeverity')],
    ...['OK', 'Warning', 'Critical'].map((one) => [one,
      t(`severity.${one}`)])], params.get('severity') || '', {
    'aria-label': t('severity'), id: 'severity',
    change: () => {
      setParam('severity', severity.value);
      draw();
    }});
  const count = h('p', {role: 'status', class: 'hint'});
  const trouble = h('div');
  const list = h('ol', {class: 'log', 'aria-label': t('view.log')});
  const more = button(t('showMore'), async () => {
    rows += ROWS;
    draw();
  }, {id: 'more'});

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = entries.filter((one) => {
      const text = `${one.Name} ${one.Message} ${one.Originator}`
        .toLowerCase();
      return (!severity.value || one.Severity === severity.value)
        && words.every((word) => text.includes(word));
    });
    const text = t('logCount', {found: found.length, all: entries.length});
    if (count.textContent !== text) {
      count.textContent = text;
    }
    fill(list, found.slice(0, rows).map((one) => h('li', {
      class: `severity ${one.Severity}`},
    h('span', {class: 'when'}, time(one.Created)),
    h('span', {class: 'level'}, t(`severity.${one.Severity}`)),
    h('span', {class: 'what'}, h('strong', {}, one.Name), ' ', one.Message),
    h('span', {class: 'by'}, one.Originator || ''))));
    more.hidden = found.length <= rows;
  }

  const refresh = once(async () => {
    try {
      const found = await get(service.Entries['@odata.id']);
      fill(trouble);
      const text = JSON.stringify(found);
      if (text !== read) {
        read = text;
        entries = found.Members.sort(
          (a, b) => (a.Created < b.Created ? 1 : -1));
        draw();
      }
    } catch (error) {
      if (!error.ended) {
        fill(trouble, h('div', {class: 'box bad'}, problem(error)));
      }
    }
  });

  fill(view, heading.element, h('h2', {}, t('view.log')),
    h('div', {class: 'tools'}, search, severity,
      clear && may('ConfigureComponents') ? button(t('clearLog'), async () => {
        if (await confirm(t('confirmClearLog'), t('clearLog'))) {
          await post(clear);
          say(t('logCleared'));
          await refresh();
        }
      }, {id: 'clear', class: 'danger'}) : null),
    count, trouble, list, more);
  await refresh();
  // An event reaches the log a moment after its stream.
  let timer = null;
  const stop = listen((events) => {
    if (!concerns(events, heading.path)) {
      return;
    }
    heading.refresh().catch(() => {});
    refresh();
    if (events.length) {
      clearTimeout(timer);
      timer = setTimeout(refresh, 1500);
    }
  });
  return () => {
    clearTimeout(timer);
    stop();
  };
}
