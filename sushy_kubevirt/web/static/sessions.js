// SPDX-License-Identifier: Apache-2.0
// Sessions, and how long they last without a request.

import {Panel, button, confirm, field, form, h, say, table, time}
  from './dom.js';
import {ROOT, current, get, may, members, patch, remove} from './redfish.js';
import {t} from './texts.js';
import {showPanels} from './view.js';

/** Show the sessions. */
export async function open(view, {title}) {
  title(t('view.sessions'));
  const service = (await get(ROOT)).SessionService['@odata.id'];
  const own = current()?.uri;
  const list = new Panel(t('view.sessions'),
    () => members(`${service}/Sessions`),
    (sessions) => table(t('view.sessions'), [t('userName'), t('address'),
      t('since'), t('client'), t('action')], sessions.map((one) => [
      one.UserName, one.ClientOriginIPAddress || '', time(one.CreatedTime),
      one['@odata.id'] === own ? t('thisSession') : one.Context || '',
      one['@odata.id'] !== own && (may('ConfigureManager')
        || one.UserName === current()?.user)
        ? button(t('closeSession'), async () => {
          if (await confirm(t('confirmCloseSession', {user: one.UserName}),
            t('closeSession'))) {
            await remove(one['@odata.id']);
            say(t('sessionClosed'));
            await list.reset();
          }
        }, {id: `close-${one.Id}`}) : '']), t('noSessions')));
  const settings = new Panel(t('settings'), () => get(service), (data) => {
    const disabled = !may('ConfigureManager');
    const seconds = h('input', {type: 'number', id: 'timeout', min: '30',
      max: '86400', value: data.SessionTimeout, required: true, disabled});
    return form(disabled ? null : async () => {
      await patch(service, {SessionTimeout: Number(seconds.value)});
      say(t('saved'));
      await settings.reset();
    }, t('save'), field(t('sessionTimeout'), seconds, t('sessionHint')));
  });
  return showPanels(view, h('h1', {class: 'unseen'}, t('view.sessions')),
    [list, settings]);
}
