// SPDX-License-Identifier: Apache-2.0
// The frame of the page: header, navigation, and the view that the URL names.

import {button, clearMessages, fill, h, messageArea, say} from './dom.js';
import * as events from './events.js';
import * as redfish from './redfish.js';
import {t} from './texts.js';
import {here, link, shown} from './view.js';

const login = () => import('./login.js');

/** Views of a machine, in the order of the navigation. */
const VIEWS = {
  overview: () => import('./overview.js'),
  console: () => import('./serial.js'),
  display: () => import('./display.js'),
  media: () => import('./media.js'),
  firmware: () => import('./firmware.js'),
  log: () => import('./log.js'),
  certificates: () => import('./certificates.js'),
};

/** Views of the service. */
const SERVICE_VIEWS = {
  tasks: () => import('./tasks.js'),
  sessions: () => import('./sessions.js'),
  accounts: () => import('./accounts.js'),
};

/** Milliseconds until the other views are loaded, behind the first one. */
const LATER = 1000;

const header = h('header');
const navigation = h('nav', {'aria-label': t('views')});
const main = h('main', {id: 'main', tabindex: '-1'});
const lost = h('p', {class: 'box bad', role: 'alert', hidden: true});

document.body.append(
  h('a', {class: 'skip', href: '#main', click: (event) => {
    event.preventDefault();
    main.focus();
  }}, t('skip')),
  header, navigation, lost, h('div', {class: 'frame'}, ...messageArea, main));

/** Ends what the present view has started. */
let leave = () => {};

/** Number of the present view: an answer may be for one that was left. */
let opened = 0;

/** The only machine of the service; null if there are several. */
let only = null;

/** Path of the collection of machines; null before it was read. */
let collection = null;

/** That machine as the page has read it, for the first view. */
let known = null;

redfish.observe(
  () => open(t('sessionEnded')),
  (isLost) => {
    lost.textContent = isLost ? t('lost') : '';
    lost.hidden = !isLost;
  });

/** End the present view. */
function end() {
  events.end();
  leave();
  leave = () => {};
  opened += 1;
  shown.place = null;
  collection = null;
  known = null;
}

/** Show the login if one is needed, else the view of the URL. */
async function open(reason) {
  end();
  clearMessages();
  fill(navigation);
  try {
    // What will be shown arrives in the meantime; the document names the
    // modules of the overview.
    const {path} = here();
    if (redfish.current() === null) {
      login().catch(() => {});
    } else if (path.length) {
      load(path).catch(() => {});
    }
    if (!await readMachines()) {
      fill(header, h('span', {class: 'product'}, t('product')));
      document.title = t('product');
      (await login()).showLogin(main, () => open(), reason);
      return;
    }
  } catch (error) {
    if (!error.ended) {
      say(error);
      fill(main, button(t('tryAgain'), () => open()));
    }
    return;
  }
  await route();
  // Unless the session has ended.
  if (collection !== null) {
    events.start();
    setTimeout(loadOthers, LATER);
  }
}

/**
 * Read which machines there are, and the only one as well: the first frame
 * needs no other request.
 * @returns {Promise<boolean>} false if a login is needed
 */
async function readMachines() {
  let systems;
  try {
    systems = await redfish.get(`${redfish.ROOT}Systems?$top=2&$expand=.`);
  } catch (error) {
    if (error.status === 401 && !error.ended) {
      return false;
    }
    throw error;
  }
  collection = systems['@odata.id'];
  const [system] = systems.Members;
  only = systems.Members.length === 1 && !systems['Members@odata.nextLink']
    ? system['@odata.id'].split('/').pop() : null;
  // A member that could not be read is a reference.
  known = only !== null && system.Id ? system : null;
  return true;
}

/**
 * Load all views, to show them while the service is lost: a browser may not
 * try again to load a module.
 */
function loadOthers() {
  for (const one of [...Object.values({...VIEWS, ...SERVICE_VIEWS}), login]) {
    one().catch(() => {});
  }
}

/**
 * Open the view that the URL names.
 * @returns {Promise<boolean>} whether the user looks at it now
 */
async function route() {
  if (collection === null) {
    return false;
  }
  const {path} = here();
  if (!path.length && only !== null) {
    history.replaceState(null, '', link('systems', only, 'overview'));
    return route();
  }
  if (location.hash === shown.place) {
    return false;
  }
  leave();
  leave = () => {};
  shown.place = location.hash;
  opened += 1;
  const view = opened;
  clearMessages();
  const id = path[0] === 'systems' ? path[1] : only;
  drawNavigation(path, id);
  fill(main, h('p', {class: 'hint'}, t('loading')));
  try {
    const module = await load(path);
    if (view !== opened) {
      return false;
    }
    const element = h('div');
    const first = id === only ? known : null;
    known = null;
    const close = await module.open(element, {
      collection, system: id && `${collection}/${encodeURIComponent(id)}`, id,
      only, known: first, title: (text) => {
        if (view === opened) {
          document.title = `${text} – ${t('product')}`;
        }
      }});
    if (view !== opened) {
      close?.();
      return false;
    }
    leave = close || (() => {});
    fill(main, element);
  } catch (error) {
    if (view === opened && !error.ended) {
      fill(main, h('h1', {}, t('notShown')),
        error.status === undefined ? null : button(t('tryAgain'), route));
      say(error);
      shown.place = null;
      if (error.status === 0) {
        leave = events.listen(() => redfish.get(redfish.ROOT).then(
          () => shown.place ?? route(), () => {}));
      }
    }
  }
  return view === opened;
}

function load(path) {
  if (!path.length) {
    return import('./list.js');
  }
  const [views, name] = path[0] === 'systems'
    ? [VIEWS, path[2] || 'overview'] : [SERVICE_VIEWS, path[0]];
  // A segment of dots would lead to another resource.
  const isMachine = path[0] !== 'systems' || /[^.]/.test(path[1] || '');
  return isMachine && Object.hasOwn(views, name) ? views[name]().catch(() => {
    throw redfish.unreachable();
  }) : Promise.reject(new Error(t('noView')));
}

function drawNavigation(path, id) {
  const user = redfish.current()?.user;
  fill(header,
    h('a', {class: 'product', href: '#/'}, t('product')),
    h('span', {class: 'user'},
      user ? t('loggedInAs', {user, role: (redfish.current().roles || [])
        .join(', ')}) : t('noLogin'),
      user ? button(t('logout'), async () => {
        let reason = t('loggedOut');
        end();
        try {
          await redfish.logout();
        } catch {
          reason = t('notLoggedOut');
        }
        await open(reason);
      }, {id: 'logout'}) : null));
  const present = path[0] === 'systems' ? path[2] || 'overview' : path[0];
  const entry = (name, target) => h('a', {href: target,
    'aria-current': name === present ? 'page' : null}, t(`view.${name}`));
  fill(navigation,
    only === null ? h('a', {href: '#/', 'aria-current':
      path.length ? null : 'page'}, t('view.list')) : null,
    id ? Object.keys(VIEWS).map(
      (name) => entry(name, link('systems', id, name))) : null,
    h('span', {class: 'gap'}),
    Object.keys(SERVICE_VIEWS).map((name) => entry(name, link(name))));
}

addEventListener('hashchange', async () => {
  if (await route()) {
    main.focus({preventScroll: true});
    scrollTo(0, 0);
  }
});
open();
