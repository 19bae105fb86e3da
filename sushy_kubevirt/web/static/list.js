// SPDX-License-Identifier: Apache-2.0
// All machines of the service: search, state and health.

import {fill, h, problem, select} from './dom.js';
import {isStreaming, listen} from './events.js';
import {get} from './redfish.js';
import {t} from './texts.js';
import {health, here, link, once, powerText, setParam} from './view.js';

const ROW = 44;         // pixels, as in page.css
const PAGE = 250;       // machines of a request
const SPARE = 8;        // rows that are drawn above and below the visible
const GATHER = 200;     // milliseconds in which events are gathered
const FEW = 20;         // changed machines that are read one by one
const AGE = 60000;      // milliseconds until the list is read without event
const EACH = 20;        // the same for each machine, while no events arrive

const order = new Intl.Collator('en', {numeric: true});

const SELECTED = ['Id', 'Name', 'PowerState', 'Status', 'Description', 'Oem']
  .map((name) => `Members/${name}`).join(',');

/** Show the list. */
export async function open(view, {collection, title}) {
  const machines = new Map();
  let found = [];
  let focused = 0;
  const drawn = new Map();    // rows, by path

  const {params} = here();
  const search = h('input', {type: 'search', id: 'search',
    value: params.get('q') || '', placeholder: t('searchHint'),
    'aria-label': t('search'),
    input: () => {
      setParam('q', search.value.trim());
      choose();
    }});
  const state = select([['', t('anyState')],
    ...['On', 'Off', 'PoweringOn', 'PoweringOff', 'Paused', 'Problem'].map(
      (one) => [one, powerText(one)])], params.get('state') || '', {
    'aria-label': t('state'), id: 'state',
    change: () => {
      setParam('state', state.value);
      choose();
    }});
  const count = h('p', {role: 'status', class: 'hint'});
  const trouble = h('div');
  const list = h('ul', {class: 'machines', 'aria-label': t('view.list')});
  const scroll = h('div', {class: 'viewport', scroll: () => draw(),
    keydown: move}, list);

  /** Show what the user has asked for, from its beginning. */
  function choose() {
    found = [];
    focused = 0;
    scroll.scrollTop = 0;
    filter();
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    // The row that the user has chosen stays chosen.
    const before = focused || list.contains(document.activeElement)
      ? found[focused]?.['@odata.id'] : null;
    found = [...machines.values()].filter((one) => {
      const text = `${name(one)} ${one.Id}`.toLowerCase();
      return words.every((word) => text.includes(word))
        && (!state.value || state.value === one.PowerState
          || state.value === 'Problem' && one.Status?.Health !== 'OK');
    }).sort((a, b) => order.compare(name(a), name(b)));
    const text = t('machines', {found: found.length, all: machines.size});
    if (count.textContent !== text) {
      count.textContent = text;
    }
    const index = found.findIndex((one) => one['@odata.id'] === before);
    focused = index >= 0 ? index
      : Math.min(focused, Math.max(found.length - 1, 0));
    draw();
  }

  function draw() {
    list.style.height = `${found.length * ROW}px`;
    const height = scroll.clientHeight || 800;
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - SPARE);
    const last = Math.min(found.length,
      Math.ceil((scroll.scrollTop + height) / ROW) + SPARE);
    const rows = [];
    for (let i = first; i < last; i += 1) {
      rows.push(row(found[i], i));
    }
    // The Tab key leads to it, wherever the list was scrolled to.
    if (focused < first) {
      rows.unshift(row(found[focused], focused));
    } else if (focused >= last && focused < found.length) {
      rows.push(row(found[focused], focused));
    }
    const hasFocus = list.contains(document.activeElement);
    const kept = new Set(rows);
    for (const [path, one] of drawn) {
      if (!kept.has(one)) {
        drawn.delete(path);
        one.remove();
      }
    }
    // What stays is not touched: a mouse button may be held down on it.
    rows.forEach((one, i) => {
      if (list.children[i] !== one) {
        list.insertBefore(one, list.children[i] || null);
      }
    });
    if (hasFocus && !list.contains(document.activeElement)) {
      list.querySelector('[tabindex="0"]')?.focus({preventScroll: true});
    }
  }

  function row(one, i) {
    const path = one['@odata.id'];
    if (!drawn.has(path)) {
      drawn.set(path, h('li', {}, h('a', {
        href: link('systems', one.Id, 'overview'), id: `m-${one.Id}`},
      h('span', {}), h('span', {}), h('span', {}))));
    }
    const item = drawn.get(path);
    const [level, text] = health(one.Status);
    item.style.top = `${i * ROW}px`;
    item.setAttribute('aria-setsize', found.length);
    item.setAttribute('aria-posinset', i + 1);
    item.firstChild.tabIndex = i === focused ? 0 : -1;
    item.firstChild.dataset.row = i;
    [['name', name(one)],
      [`power ${one.PowerState}`, powerText(one.PowerState)],
      [`health ${level}`, text]].forEach(([kind, words], place) => {
      const span = item.firstChild.children[place];
      if (span.textContent !== words || span.className !== kind) {
        span.className = kind;
        span.textContent = words;
      }
    });
    return item;
  }

  // One row can be reached by the tab key, the others by the arrow keys.
  function move(event) {
    const page = Math.max(1, Math.floor(scroll.clientHeight / ROW) - 1);
    const to = {ArrowDown: focused + 1, ArrowUp: focused - 1,
      PageDown: focused + page, PageUp: focused - page, Home: 0,
      End: found.length - 1}[event.key];
    if (to === undefined || !found.length) {
      return;
    }
    event.preventDefault();
    focused = Math.max(0, Math.min(found.length - 1, to));
    const top = focused * ROW;
    if (top < scroll.scrollTop) {
      scroll.scrollTop = top;
    } else if (top + ROW > scroll.scrollTop + scroll.clientHeight) {
      scroll.scrollTop = top + ROW - scroll.clientHeight;
    }
    draw();
    list.querySelector(`[data-row="${focused}"]`)?.focus();
  }

  async function load() {
    const gone = new Set(machines.keys());
    let next = `${collection}?$expand=.&$top=${PAGE}&$select=${SELECTED}`;
    while (next) {
      const page = await get(next);
      for (const one of page.Members) {
        machines.set(one['@odata.id'], one);
        gone.delete(one['@odata.id']);
      }
      next = page['Members@odata.nextLink'];
      if (!shownOnce) {
        filter();
      }
    }
    for (const id of gone) {
      machines.delete(id);
    }
    shownOnce = true;
    filter();
  }
  let shownOnce = false;
  let read = 0;

  const refresh = once(async () => {
    read = Date.now();
    try {
      await load();
      fill(trouble);
    } catch (error) {
      read = 0;
      if (!error.ended) {
        fill(trouble, h('div', {class: 'box bad'}, problem(error)));
      }
    }
  });

  const changed = new Set();
  let timer = null;

  // Changes that come while the last ones are read wait for them.
  async function update() {
    const paths = [...changed];
    changed.clear();
    if (paths.length > FEW) {
      await refresh();
    } else {
      try {
        const read = await Promise.all(paths.map((path) => get(
          `${path}?$select=${SELECTED.replaceAll('Members/', '')}`)));
        read.forEach((one, i) => machines.set(paths[i], one));
        filter();
      } catch {
        await refresh();
      }
    }
    timer = changed.size ? setTimeout(update, GATHER) : null;
  }

  fill(view, h('h1', {}, t('view.list')),
    h('div', {class: 'tools'}, search, state), count, trouble, scroll);
  title(t('view.list'));
  const resize = new ResizeObserver(() => draw());
  resize.observe(scroll);
  refresh();
  const stop = listen((events) => {
    if (events.some((event) => event.EventType === 'ResourceAdded'
        || event.EventType === 'ResourceRemoved')
        || !events.length && Date.now() - read > (isStreaming() ? AGE
          : Math.min(AGE, machines.size * EACH))) {
      refresh();
      return;
    }
    for (const event of events) {
      const path = event.OriginOfCondition?.['@odata.id'];
      if (machines.has(path)) {
        changed.add(path);
      }
    }
    if (changed.size) {
      timer ??= setTimeout(update, GATHER);
    }
  });
  return () => {
    clearTimeout(timer);
    stop();
    resize.disconnect();
  };
}

function name(one) {
  const namespace = one.Oem?.SushyKubevirt?.Namespace;
  return namespace ? `${namespace}/${one.Name}` : one.Name;
}
