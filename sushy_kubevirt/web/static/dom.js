// SPDX-License-Identifier: Apache-2.0
// Elements, dialogs and panels. Text becomes text nodes only, never HTML.

import {RedfishError} from './redfish.js';
import {t} from './texts.js';

/**
 * Make an element.
 * @param {string} tag name of the element
 * @param {object} props attributes; functions are event listeners ("click"),
 *   null and false are left out, true gives an empty attribute
 * @param {...(Node|string|Array|null)} children
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (typeof value === 'function') {
      element.addEventListener(name, value);
    } else if (name === 'value') {
      element.value = value;
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child);
    }
  }
}

/** Replace the children of an element; the focus stays at the same place. */
export function fill(element, ...children) {
  const find = focused(element);
  element.replaceChildren();
  append(element, children);
  const one = find();
  const details = one?.closest('details');
  if (details && one.tagName !== 'SUMMARY') {
    // What is closed cannot have the focus.
    details.open = true;
  }
  one?.focus({preventScroll: true});
}

/**
 * Return a function that finds again what has the focus: the element of the
 * same id, else that of the same kind and number.
 */
function focused(element) {
  const one = document.activeElement;
  if (one === element || !element.contains(one)) {
    return () => null;
  }
  const number = [...element.querySelectorAll(one.tagName)].indexOf(one);
  return () => (one.id && document.getElementById(one.id))
    || element.querySelectorAll(one.tagName)[number];
}

let counter = 0;

/** Return an id that no other element has. */
export function newId() {
  counter += 1;
  return `n${counter}`;
}

/** A label with its control below; `hint` explains it. */
export function field(label, control, hint) {
  control.id = control.id || newId();
  const parts = [h('label', {for: control.id}, label), control];
  if (hint) {
    const id = `${control.id}-hint`;
    control.setAttribute('aria-describedby', id);
    parts.push(h('p', {id, class: 'hint'}, hint));
  }
  return h('div', {class: 'field'}, parts);
}

/** A check box with its label beside it. */
export function checkbox(label, control) {
  control.id = control.id || newId();
  control.type = 'checkbox';
  return h('div', {class: 'check'}, control,
    h('label', {for: control.id}, label));
}

/** A select with the given [value, text] pairs. */
export function select(pairs, value, props) {
  const element = h('select', props, pairs.map(
    ([one, text]) => h('option', {value: one}, text)));
  element.value = value;
  return element;
}

/**
 * A button that calls an asynchronous function and is busy meanwhile.
 * Errors are shown by `say`.
 */
export function button(label, action, props) {
  const element = h('button', {
    type: 'button', ...props,
    click: () => run(element, action),
  }, label);
  return element;
}

/**
 * A form that calls an asynchronous function when it is submitted.
 * @param {?function} action null if the user may only read
 */
export function form(action, submit, ...children) {
  if (action === null) {
    return h('div', {}, children);
  }
  const send = h('button', {type: 'submit', class: 'primary'}, submit);
  const element = h('form', {
    submit: (event) => {
      event.preventDefault();
      run(send, action);
    },
    input: () => {
      element.dataset.changed = '';
    },
  }, children, h('div', {class: 'buttons'}, send));
  return element;
}

async function run(element, action) {
  if (element.getAttribute('aria-disabled') === 'true') {
    return;
  }
  // Not "disabled", which would take the focus away.
  element.setAttribute('aria-disabled', 'true');
  element.setAttribute('aria-busy', 'true');
  try {
    await action();
  } catch (error) {
    if (!error.ended) {
      say(error);
    }
  } finally {
    element.removeAttribute('aria-disabled');
    element.removeAttribute('aria-busy');
  }
}

/** Describe an error: what happened, and what to do. */
export function problem(error) {
  const entries = error instanceof RedfishError
    ? error.entries : [{Message: String(error.message || error)}];
  return entries.map((entry) => h('p', {},
    h('strong', {}, entry.Message), ' ',
    entry.Resolution && entry.Resolution !== 'None.'
      ? entry.Resolution : null));
}

const messages = h('aside', {class: 'messages', 'aria-label': t('messages')});
const spoken = h('div', {role: 'status', class: 'unseen'});
const alarms = h('div', {role: 'alert', class: 'unseen'});

/** The elements in which `say` shows messages. */
export const messageArea = [messages, spoken, alarms];

/** Show a message until the user closes it, or an error. */
export function say(what) {
  const failed = what instanceof Error;
  const content = failed ? problem(what) : [h('p', {}, what)];
  const box = h('div', {class: failed ? 'box bad' : 'box good'}, content,
    h('button', {
      type: 'button', class: 'close', 'aria-label': t('close'),
      click: () => box.remove(),
    }, '×'));
  messages.replaceChildren(box);
  (failed ? alarms : spoken).textContent = content.map(
    (one) => one.textContent).join(' ');
}

/** Remove the messages and an open question, when another view is opened. */
export function clearMessages() {
  messages.replaceChildren();
  document.querySelector('dialog[open]')?.close('no');
}

/**
 * Ask for a confirmation.
 * @returns {Promise<boolean>}
 */
export function confirm(question, label) {
  return new Promise((resolve) => {
    const id = newId();
    const dialog = h('dialog', {'aria-labelledby': id,
      close: () => {
        dialog.remove();
        resolve(dialog.returnValue === 'yes');
      }},
    h('p', {id}, question),
    h('div', {class: 'buttons'},
      h('button', {type: 'button', autofocus: true,
        click: () => dialog.close('no')}, t('cancel')),
      h('button', {type: 'button', class: 'danger',
        click: () => dialog.close('yes')}, label)));
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * A part of a view that shows data of the service, and keeps it up to date.
 *
 * It is drawn again when the data has changed, unless the user has begun to
 * fill in a form in it.
 */
export class Panel {
  /**
   * @param {string} title heading
   * @param {function} load asynchronous, returns the data
   * @param {function} draw of the data; returns children
   */
  constructor(title, load, draw) {
    this.load = load;
    this.draw = draw;
    this.shown = undefined;
    /** Whether what was filled in is to be replaced. */
    this.stale = false;
    /** Numbers of the last reading, and of the one that is shown. */
    this.reading = 0;
    this.last = 0;
    this.body = h('div', {'aria-busy': 'true'},
      h('p', {class: 'hint'}, t('loading')));
    const id = newId();
    this.element = h('section', {'aria-labelledby': id},
      h('h2', {id}, title), this.body);
  }

  /** Load the data, and draw it if it has changed. */
  async refresh() {
    this.reading += 1;
    const reading = this.reading;
    const isFilledIn = () => this.body.querySelector('form[data-changed]');
    // An answer that a later one has overtaken does not count.
    const isLate = () => {
      const late = reading < this.last;
      this.last = Math.max(reading, this.last);
      return late;
    };
    try {
      const data = await this.load();
      const text = JSON.stringify(data);
      if (!isLate() && (this.stale || text !== this.shown) && !isFilledIn()) {
        this.fill(this.draw(data));
        this.stale = false;
        this.shown = text;
      }
    } catch (error) {
      if (error.ended) {
        throw error;
      }
      // What is shown and was filled in stays.
      if (!isLate() && (this.shown === undefined
          || error.status !== 0 && !isFilledIn())) {
        this.shown = undefined;
        this.fill(h('div', {class: 'box bad'}, problem(error)),
          button(t('tryAgain'), () => this.refresh()));
      }
    }
  }

  fill(...children) {
    this.body.removeAttribute('aria-busy');
    fill(this.body, ...children);
  }

  /**
   * Show the data in place of what was filled in.
   *
   * Nothing is drawn twice: the user may have gone on with what a refresh has
   * drawn meanwhile.
   */
  async reset() {
    for (const one of this.body.querySelectorAll('form[data-changed]')) {
      delete one.dataset.changed;
      this.stale = true;
    }
    try {
      await this.refresh();
    } finally {
      // If the service is lost, the form stays as it is.
      this.stale = false;
    }
  }
}

/** A list of terms and values, without those that are missing. */
export function facts(pairs) {
  return h('dl', {}, pairs.filter(
    ([, value]) => value !== null && value !== undefined && value !== '').map(
    ([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

/** A table; cells are children of elements. */
export function table(caption, heads, rows, empty) {
  if (!rows.length) {
    return h('p', {class: 'hint'}, empty);
  }
  return h('div', {class: 'scroll', tabindex: '0', role: 'region',
    'aria-label': caption},
  h('table', {}, h('caption', {class: 'unseen'}, caption),
    h('thead', {}, h('tr', {}, heads.map((one) => h('th', {scope: 'col'},
      one)))),
    h('tbody', {}, rows.map((row) => h('tr', {}, row.map(
      (cell) => h('td', {}, cell)))))));
}

/** Show a time of the service in the user's zone. */
export function time(text) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? String(text ?? '') : h(
    'time', {datetime: text, title: text}, date.toLocaleString());
}
