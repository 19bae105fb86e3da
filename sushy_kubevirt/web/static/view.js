// SPDX-License-Identifier: Apache-2.0
// What views share: the state in their URL, #/systems/<id>/<view>?name=value,
// panels, the heading of a machine, and words for its state.

import {fill, h} from './dom.js';
import {listen} from './events.js';
import {changeCount, get, may} from './redfish.js';
import {t} from './texts.js';

/** The part of the URL that is shown, null for none: `place`. */
export const shown = {place: null};

/** Return {path: [segments], params: URLSearchParams} of the present URL. */
export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  return {
    path: path.split('/').filter(Boolean).map(decode),
    params: new URLSearchParams(query || ''),
  };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Return the URL of a view. */
export function link(...path) {
  return '#/' + path.map(encodeURIComponent).join('/');
}

/** Change a parameter of the present view, without opening it again. */
export function setParam(name, value) {
  const {path, params} = here();
  if (value) {
    params.set(name, value);
  } else {
    params.delete(name);
  }
  const query = params.toString();
  history.replaceState(null, '', link(...path) + (query ? `?${query}` : ''));
  shown.place = location.hash;
}

/**
 * Show panels and keep them up to date.
 * @param {Element} view
 * @param {Array} before what stands above the panels
 * @param {Array<Panel>} panels
 * @param {object} [heading] with `refresh`, for a machine's views
 * @returns {Promise<function>} that ends it
 */
export async function showPanels(view, before, panels, heading) {
  fill(view, before, h('div', {class: 'panels'},
    panels.map((one) => one.element)));
  // Each waits for its own requests only.
  const all = (heading ? [heading, ...panels] : panels).map(
    (one) => once(() => one.refresh()));
  const refresh = () => Promise.all(all.map((one) => one()));
  const report = (error) => {
    // The heading's first reading is the view's, and fails below.
    if (!error.ended && heading?.system !== null) {
      throw error;
    }
  };
  const first = refresh().catch(report);
  // Panels say that they load, which may need several requests.
  await (heading ? heading.refresh() : first);
  return listen((events) => {
    if (!heading || concerns(events, heading.path)) {
      refresh().catch(report);
    }
  });
}

/**
 * Return a function that runs an action once at a time; calls meanwhile make
 * it run once more.
 * @param {function} action asynchronous
 * @returns {function} asynchronous
 */
export function once(action) {
  let running = null;
  let again = false;
  return async function run() {
    if (running) {
      again = true;
      return running;
    }
    running = action();
    try {
      await running;
    } finally {
      running = null;
    }
    if (again) {
      again = false;
      await run();
    }
    return undefined;
  };
}

/**
 * Return whether events may change what is shown of a machine.
 * @param {Array} events as `listen` gives them
 * @param {string} path of the ComputerSystem
 */
export function concerns(events, path) {
  const all = path.slice(0, path.lastIndexOf('/') + 1);
  return !events.length || events.some((event) => {
    const origin = event.OriginOfCondition?.['@odata.id'] || '';
    return !origin.startsWith(all) || `${origin}/`.startsWith(`${path}/`);
  });
}

/** Return the text for a PowerState. */
export function powerText(state) {
  return t(`power.${state}`);
}

/**
 * Return [level, text] for a Status: ok, warning or critical.
 * @param {object} status
 */
export function health(status) {
  const level = {OK: 'ok', Warning: 'warning', Critical: 'critical'}[
    status?.Health] || 'ok';
  return [level, t(`health.${level}`)];
}

/** Return the messages of a Status with conditions. */
export function conditions(status) {
  return (status?.Conditions || []).map((one) => one.Message);
}

/** Name, power state and health of a machine, above each of its views. */
export class Heading {
  /**
   * @param {object} context of the view, with `system`: path of the
   *   ComputerSystem, `known`: the ComputerSystem if it has just been read,
   *   `title`: function that sets the title of the page
   * @param {string} view name of the view
   */
  constructor({system, known, title}, view) {
    this.path = system;
    this.title = title;
    this.view = view;
    this.known = known;
    this.name = h('h1', {});
    this.power = h('span', {role: 'status', id: 'power'});
    this.trouble = h('div', {role: 'status'});
    this.element = h('div', {},
      h('div', {class: 'heading'}, this.name, this.power), this.trouble);
    /** The ComputerSystem. */
    this.system = null;
    this.reading = null;
    this.changes = 0;
    /** Numbers of the last reading, and of the one that is shown. */
    this.count = 0;
    this.last = 0;
  }

  /**
   * Read the machine, and show it; calls at the same time share a request,
   * unless something was changed since it began.
   */
  read() {
    if (!this.reading || this.changes !== changeCount()) {
      this.changes = changeCount();
      this.count += 1;
      const number = this.count;
      const answer = this.known ? Promise.resolve(this.known)
        : get(this.path);
      this.known = null;
      const reading = answer.then((system) => {
        if (number > this.last) {
          this.last = number;
          this.show(system);
        }
        return system;
      }).finally(() => {
        if (this.reading === reading) {
          this.reading = null;
        }
      });
      this.reading = reading;
    }
    return this.reading;
  }

  /** Show the machine as it is now. */
  async refresh() {
    try {
      await this.read();
    } catch (error) {
      if (this.system === null || error.ended) {
        throw error;
      }
      // The page says that the service is lost.
    }
  }

  show(system) {
    this.system = system;
    const namespace = system.Oem?.SushyKubevirt?.Namespace;
    this.name.textContent = namespace
      ? `${namespace}/${system.Name}` : system.Name;
    this.title(`${system.Name}: ${t(`view.${this.view}`)}`);
    const text = powerText(system.PowerState);
    if (this.power.textContent !== text) {
      this.power.textContent = text;
      this.power.className = `power ${system.PowerState}`;
    }
    const [level, words] = health(system.Status);
    const key = JSON.stringify(system.Status);
    if (this.trouble.dataset.key !== key) {
      this.trouble.dataset.key = key;
      fill(this.trouble, level === 'ok' ? null : h('div', {
        class: level === 'critical' ? 'box bad' : 'box'},
      h('p', {}, h('strong', {}, words)),
      conditions(system.Status).map((one) => h('p', {}, one))));
    }
  }
}

/**
 * Begin the view of a console: its heading, its URI and its modules.
 * @param {Element} view shows what is missing
 * @param {object} context of the view
 * @param {string} name of the view
 * @param {object} texts `none`: for a machine without it;
 *   `module`, `folder`: what is installed for it
 * @param {function} find of the ComputerSystem, returns the URI
 * @param {function} load asynchronous, imports the modules
 * @returns {Promise<object>} heading, stop (ends the updates), and uri and
 *   modules unless something is missing
 */
export async function beginConsole(view, context, name, texts, find, load) {
  const heading = new Heading(context, name);
  await heading.refresh();
  const stop = listen((events) => {
    if (concerns(events, heading.path)) {
      heading.refresh().catch(() => {});
    }
  });
  const uri = find(heading.system);
  let problem = !uri ? texts.none
    : may('ConfigureComponents') ? null : t('needsOperator');
  let modules = null;
  if (!problem) {
    try {
      modules = await load();
    } catch {
      problem = t('moduleMissing', {
        name: texts.module, folder: texts.folder});
    }
  }
  if (problem) {
    fill(view, heading.element, h('h2', {}, t(`view.${name}`)),
      h('p', {class: 'box'}, problem));
  }
  return {heading, stop, uri, modules};
}
