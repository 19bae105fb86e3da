// SPDX-License-Identifier: Apache-2.0
// Login, and the change of a password that has to be changed first.

import {field, fill, form, h, say} from './dom.js';
import {login, logout, patch} from './redfish.js';
import {t} from './texts.js';

/**
 * Show the login.
 * @param {Element} place
 * @param {function} done called after the login
 * @param {string} [reason] why a login is needed again
 */
export function showLogin(place, done, reason) {
  const user = h('input', {autocomplete: 'username', required: true,
    id: 'user', autocapitalize: 'none', spellcheck: 'false'});
  const password = h('input', {type: 'password', required: true,
    id: 'password', autocomplete: 'current-password'});
  fill(place, h('section', {class: 'narrow', 'aria-labelledby': 'login'},
    h('h1', {id: 'login'}, t('login')),
    reason ? h('p', {class: 'box', role: 'status'}, reason) : null,
    form(async () => {
      let account;
      try {
        account = await login(user.value, password.value);
      } catch (error) {
        if (error.status === 401) {
          error.entries = [{Message: t('loginRefused'),
            Resolution: t('loginRemedy')}];
          password.value = '';
          password.focus();
        }
        throw error;
      }
      if (account) {
        showChange(place, account, user.value, () => showLogin(
          place, done, t('passwordChanged')));
      } else {
        done();
      }
    }, t('login'),
    field(t('userName'), user), field(t('password'), password))));
  user.focus();
}

/** Ask for a new password, before the account can do anything else. */
function showChange(place, account, name, done) {
  const user = h('input', {type: 'hidden', autocomplete: 'username',
    value: name});
  const password = h('input', {type: 'password', required: true,
    id: 'new-password', autocomplete: 'new-password'});
  const again = h('input', {type: 'password', required: true,
    autocomplete: 'new-password'});
  fill(place, h('section', {class: 'narrow', 'aria-labelledby': 'change'},
    h('h1', {id: 'change'}, t('changePassword')),
    h('p', {}, t('changePasswordFirst', {name})),
    form(async () => {
      if (password.value !== again.value) {
        say(new Error(t('passwordsDiffer')));
        return;
      }
      await patch(account, {Password: password.value});
      // The session was opened with the old one.
      await logout().catch(() => {});
      done();
    }, t('changePassword'), user,
    field(t('newPassword'), password),
    field(t('repeatPassword'), again))));
  password.focus();
}
