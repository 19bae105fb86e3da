// SPDX-License-Identifier: Apache-2.0
// Tasks: imports of virtual media.

import {Panel, button, confirm, h, say, table, time} from './dom.js';
import {repeat} from './events.js';
import {ROOT, get, may, members, remove} from './redfish.js';
import {t} from './texts.js';
import {showPanels} from './view.js';

/** Milliseconds between two reads: progress has no events. */
const POLL = 2000;

const RUNNING = ['New', 'Starting', 'Running'];

/** Show the tasks. */
export async function open(view, {title}) {
  title(t('view.tasks'));
  const root = await get(ROOT);
  const panel = new Panel(t('view.tasks'), async () => (
    root.Tasks ? members(`${root.Tasks['@odata.id']}/Tasks`) : []),
  (tasks) => table(t('view.tasks'), [t('task'), t('state'), t('progress'),
    t('started'), t('action')], tasks.map((one) => [
    [h('strong', {}, one.Name), h('br'), one.Description,
      (one.Messages || []).map((message) => h('p', {class: 'hint'},
        message.Message, ' ', message.Resolution || ''))],
    t(`task.${one.TaskState}`), one.PercentComplete === undefined ? ''
      : h('progress', {max: '100', value: one.PercentComplete,
        'aria-label': t('progress')}, `${one.PercentComplete} %`),
    one.StartTime ? time(one.StartTime) : '',
    RUNNING.includes(one.TaskState) && may('ConfigureManager')
      ? button(t('cancelTask'), async () => {
        if (await confirm(t('confirmCancelTask', {name: one.Name}),
          t('cancelTask'))) {
          await remove(one['@odata.id']);
          say(t('taskCancelled'));
          await panel.reset();
        }
      }, {id: `cancel-${one.Id}`}) : '']), t('noTasks')));
  const stop = await showPanels(view, h('h1', {class: 'unseen'},
    t('view.tasks')), [panel]);
  const end = repeat(POLL, () => panel.refresh());
  return () => {
    end();
    stop();
  };
}
