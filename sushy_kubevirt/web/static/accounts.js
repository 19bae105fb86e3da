// SPDX-License-Identifier: Apache-2.0
// Accounts: create, change role and password, disable, delete.

import {Panel, button, checkbox, confirm, field, form, h, say, select, table}
  from './dom.js';
import {ROOT, current, get, may, members, patch, post, remove}
  from './redfish.js';
import {t} from './texts.js';
import {showPanels} from './view.js';

/** Show the accounts. */
export async function open(view, {title}) {
  title(t('view.accounts'));
  const root = await get(ROOT);
  if (!root.AccountService) {
    view.append(h('h1', {}, t('view.accounts')), h('p', {}, t('noAccounts')));
    return undefined;
  }
  const service = await get(root.AccountService['@odata.id']);
  const accounts = service.Accounts['@odata.id'];
  const limits = {minlength: service.MinPasswordLength,
    maxlength: service.MaxPasswordLength};
  const roles = (await get(service.Roles['@odata.id'])).Members.map(
    (one) => one['@odata.id'].split('/').pop());

  // Who may not see all accounts gets links to those of others.
  const list = new Panel(t('view.accounts'), async () => (
    await members(accounts)).filter((one) => one.UserName),
  (found) => table(t('view.accounts'), [t('userName'), t('role'),
    t('state'), t('action')], found.map((one) => [
    one.UserName, one.RoleId,
    one.Locked ? t('locked') : t(one.Enabled ? 'enabled' : 'disabled'),
    actions(one)]), t('noAccounts')));

  function actions(one) {
    // Those of files and Secrets, whose Ids are no numbers, are changed there.
    if (!/^\d+$/.test(one.Id)) {
      return h('span', {class: 'hint'}, one.Description);
    }
    const path = one['@odata.id'];
    const own = one.UserName === current()?.user;
    const change = async (body) => {
      await patch(path, body);
      say(t('saved'));
      await list.reset();
    };
    const users = may('ConfigureUsers');
    return h('details', {}, h('summary', {'aria-label': t('changeAccount', {
      name: one.UserName})}, t('change')),
    users || own ? passwordForm(one, change) : null,
    users ? [roleForm(one, change), h('div', {class: 'buttons'},
      button(t(one.Enabled ? 'disable' : 'enable'),
        () => change({Enabled: !one.Enabled}), {id: `enable-${one.Id}`}),
      button(t('deleteAccount'), async () => {
        if (await confirm(t('confirmDeleteAccount', {name: one.UserName}),
          t('deleteAccount'))) {
          await remove(path);
          say(t('accountDeleted', {name: one.UserName}));
          await list.reset();
        }
      }, {id: `delete-${one.Id}`, class: 'danger'}))] : null);
  }

  function passwordForm(one, change) {
    const password = h('input', {type: 'password', required: true, ...limits,
      id: `password-${one.Id}`, autocomplete: 'new-password'});
    return form(() => change({Password: password.value}),
      t('changePassword'), field(t('newPassword'), password));
  }

  function roleForm(one, change) {
    const role = select(roles.map((name) => [name, name]), one.RoleId, {
      id: `role-${one.Id}`});
    return form(() => change({RoleId: role.value}), t('changeRole'),
      field(t('role'), role));
  }

  const panels = [list];
  // Without accounts of files or Secrets none can be created.
  if (may('ConfigureUsers') && service.MaxPasswordLength) {
    const create = new Panel(t('newAccount'), async () => 1, () => {
      const name = h('input', {id: 'new-name', required: true,
        autocomplete: 'off', autocapitalize: 'none'});
      const password = h('input', {type: 'password', id: 'new-password',
        required: true, autocomplete: 'new-password', ...limits});
      const role = select(roles.map((one) => [one, one]),
        roles[roles.length - 1], {id: 'new-role'});
      const later = h('input', {id: 'new-change'});
      return form(async () => {
        await post(accounts, {UserName: name.value, Password: password.value,
          RoleId: role.value,
          ...(later.checked ? {PasswordChangeRequired: true} : {})});
        say(t('accountCreated', {name: name.value}));
        await Promise.all([create.reset(), list.reset()]);
      }, t('createAccount'), field(t('userName'), name),
      field(t('password'), password, t('passwordHint', {
        least: service.MinPasswordLength, most: service.MaxPasswordLength})),
      field(t('role'), role), checkbox(t('changeAtLogin'), later));
    });
    panels.push(create);
  }
  return showPanels(view, h('h1', {class: 'unseen'}, t('view.accounts')),
    panels);
}
