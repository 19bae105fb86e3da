// SPDX-License-Identifier: Apache-2.0
// The serial console, in a terminal (xterm.js).

import {button, fill, h} from './dom.js';
import {Connection} from './connection.js';
import {t} from './texts.js';
import {beginConsole} from './view.js';

const MODULES = '/web/modules/xterm';

/** Bytes of a message, of which the BMC refuses long ones; for pasted text. */
const PIECE = 16384;

/** Show the console. */
export async function open(view, context) {
  const {heading, stop, uri, modules} = await beginConsole(
    view, context, 'console', {
      none: t('noSerialConsole'), module: 'xterm.js', folder: 'xterm'},
    (system) => system.SerialConsole?.WebSocket?.ConsoleURI,
    () => Promise.all([
      import(`${MODULES}/xterm.mjs`), import(`${MODULES}/addon-fit.mjs`)]));
  if (!modules) {
    return stop;
  }
  const [{Terminal}, {FitAddon}] = modules;
  await stylesheet(`${MODULES}/xterm.css`);

  const restore = replaceInlineStyles();
  const terminal = new Terminal({
    cursorBlink: true, screenReaderMode: true, scrollback: 5000, fontSize: 14,
    fontFamily: 'monospace', lineHeight: 1.2, convertEol: false});
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  const notice = h('p', {role: 'status', class: 'notice', id: 'notice'});
  const again = button(t('connectAgain'), async () => {
    connection.connect();
    terminal.focus();
  }, {id: 'connect', class: 'primary'});
  again.hidden = true;
  const place = h('div', {class: 'terminal'});
  const frame = h('div', {class: 'console', id: 'console'}, place);
  const encoder = new TextEncoder();

  const connection = new Connection(uri, {
    receive: (data) => terminal.write(new Uint8Array(data)),
    notice: (text, waits) => {
      notice.textContent = text;
      again.hidden = !waits;
    },
  });
  terminal.onData((text) => {
    const data = encoder.encode(text);
    for (let i = 0; i < data.length; i += PIECE) {
      connection.send(data.subarray(i, i + PIECE));
    }
  });
  terminal.onBinary((text) => connection.send(
    Uint8Array.from(text, (one) => one.charCodeAt(0))));
  const leave = h('button', {type: 'button', id: 'leave',
    click: () => terminal.focus()}, t('enterConsole'));
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key === 'F6' && event.ctrlKey) {
      if (event.type === 'keydown') {
        leave.focus();
      }
      return false;
    }
    return true;
  });

  fill(view, heading.element, h('h2', {}, t('view.console')),
    h('div', {class: 'tools'}, leave,
      button(t('fullScreen'), () => frame.requestFullscreen(),
        {id: 'full-screen'}),
      button(t('clearScreen'), async () => terminal.clear(),
        {id: 'clear-screen'}), again),
    notice, frame, h('p', {class: 'hint'}, t('leaveConsole')));
  const resize = new ResizeObserver(() => {
    if (place.isConnected && place.clientHeight) {
      fit.fit();
    }
  });
  resize.observe(place);
  // The terminal measures its font when it is in the page.
  queueMicrotask(() => {
    const wait = () => {
      if (place.isConnected) {
        terminal.open(place);
        fit.fit();
        terminal.focus();
      } else if (!connection.ended) {
        requestAnimationFrame(wait);
      }
    };
    wait();
  });
  return () => {
    stop();
    connection.end();
    resize.disconnect();
    terminal.dispose();
    restore();
  };
}

function stylesheet(href) {
  if (document.querySelector(`link[href="${href}"]`)) {
    return null;
  }
  return new Promise((resolve) => {
    document.head.append(h('link', {rel: 'stylesheet', href,
      load: resolve, error: resolve}));
  });
}

/**
 * Let xterm.js set its styles, for which it fills <style> elements with text.
 *
 * The page's Content-Security-Policy refuses these. Other elements take their
 * place, and the text becomes a constructed style sheet.
 * @returns {function} that ends it
 */
function replaceInlineStyles() {
  const create = Document.prototype.createElement;
  document.createElement = (tag, ...more) => {
    if (tag.toLowerCase() !== 'style') {
      return create.call(document, tag, ...more);
    }
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets.push(sheet);
    const element = create.call(document, 'span');
    element.hidden = true;
    const remove = element.remove.bind(element);
    element.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter(
        (one) => one !== sheet);
      remove();
    };
    Object.defineProperty(element, 'textContent', {
      set: (text) => sheet.replaceSync(text)});
    return element;
  };
  return () => {
    delete document.createElement;
  };
}
