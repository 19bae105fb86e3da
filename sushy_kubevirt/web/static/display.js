// SPDX-License-Identifier: Apache-2.0
// The graphical console (noVNC).

import {button, checkbox, field, fill, h, say} from './dom.js';
import {Connection} from './connection.js';
import {t} from './texts.js';
import {beginConsole} from './view.js';

const MODULE = '/web/modules/novnc/core/rfb.js';

/** Show the console. */
export async function open(view, context) {
  const {heading, stop, uri, modules: RFB} = await beginConsole(
    view, context, 'display', {
      none: t('noGraphicalConsole'), module: 'noVNC', folder: 'novnc'},
    (system) => system.Oem?.SushyKubevirt?.GraphicalConsole?.ConsoleURI,
    async () => (await import(MODULE)).default);
  if (!RFB) {
    return stop;
  }

  const notice = h('p', {role: 'status', class: 'notice', id: 'notice'});
  const again = button(t('connectAgain'), async () => {
    takesKeys = true;
    connection.connect();
  }, {id: 'connect', class: 'primary'});
  again.hidden = true;
  const screen = h('div', {class: 'screen', id: 'screen'});
  const frame = h('div', {class: 'console', id: 'console'}, screen);
  let rfb = null;
  let channel = null;
  // Whether the next connection gets the keyboard: the first one, and those
  // after one that had it.
  let takesKeys = true;

  const end = () => {
    if (rfb !== null) {
      takesKeys = frame.contains(document.activeElement);
    }
    channel?.end();
    rfb = null;
    channel = null;
  };
  const connection = new Connection(uri, {
    receive: (data) => {
      if (rfb === null) {
        notice.textContent = '';
        channel = new Channel(connection.socket);
        rfb = new RFB(screen, channel, {shared: true});
        rfb.scaleViewport = scale.checked;
        rfb.background = '#000';
        rfb.addEventListener('credentialsrequired', () => say(
          new Error(t('vncPassword'))));
        // Unless the user is at another control.
        if (takesKeys && document.activeElement?.contains(frame)) {
          rfb.focus();
        }
      }
      channel.deliver(data);
    },
    notice: (words, waits) => {
      notice.textContent = words;
      again.hidden = !waits;
    },
    closed: end,
  });
  const need = (action) => async () => {
    if (rfb === null) {
      throw new Error(t('notConnected'));
    }
    await action();
  };

  const scale = h('input', {id: 'scale', change: () => {
    if (rfb !== null) {
      rfb.scaleViewport = scale.checked;
    }
  }});
  scale.checked = true;
  const text = h('textarea', {id: 'paste', rows: '3',
    spellcheck: 'false'});
  const leave = h('button', {type: 'button', id: 'leave',
    click: () => rfb?.focus()}, t('enterConsole'));
  frame.addEventListener('keydown', (event) => {
    if (event.key === 'F6' && event.ctrlKey) {
      event.preventDefault();
      event.stopPropagation();
      leave.focus();
    }
  }, true);
  // noVNC gets no release of a key after the focus has left it. It releases
  // all keys when the window loses the focus.
  frame.addEventListener('focusout', () => dispatchEvent(new Event('blur')));

  const typed = h('p', {id: 'typed'});
  const stopTyping = h('button', {type: 'button', id: 'stop-typing',
    click: () => {
      stopped = true;
    }}, t('stopTyping'));
  stopTyping.hidden = true;
  let stopped = false;
  const typeText = button(t('typeText'), need(async () => {
    const present = rfb;
    const characters = [...text.value];
    const all = characters.length;
    let done = 0;
    stopped = false;
    stopTyping.hidden = false;
    while (done < all && !stopped && rfb === present) {
      const events = typeCharacter(rfb, characters[done]);
      done += 1;
      typed.textContent = t('typed', {done, all});
      await new Promise((resolve) => setTimeout(resolve, events * PAUSE));
    }
    typed.textContent = '';
    const waiting = [typeText, stopTyping].includes(document.activeElement);
    if (waiting) {
      typeText.focus();
    }
    stopTyping.hidden = true;
    if (done < all) {
      throw new Error(t('typedPart', {done, all}));
    }
    if (waiting) {
      rfb?.focus();
    }
  }), {id: 'type-text'});

  fill(view, heading.element, h('h2', {}, t('view.display')),
    h('div', {class: 'tools'}, leave,
      button(t('ctrlAltDel'), need(() => rfb.sendCtrlAltDel()),
        {id: 'ctrl-alt-del'}),
      button(t('fullScreen'), () => frame.requestFullscreen(),
        {id: 'full-screen'}), checkbox(t('scale'), scale), again),
    notice, frame, h('p', {class: 'hint'}, t('leaveConsole')),
    h('details', {}, h('summary', {}, t('paste')),
      field(t('pasteText'), text, t('pasteHint')),
      h('div', {class: 'buttons'}, typeText, stopTyping), typed));
  return () => {
    stop();
    connection.end();
    end();
  };
}

/** Characters that need Shift on a US keyboard; QEMU presses it for none. */
const SHIFTED = /[A-Z~!@#$%^&*()_+{}|:"<>?]/;
const SHIFT = 0xffe1;

/**
 * Milliseconds for a key's press or release.
 *
 * QEMU's VNC server passes on one in 10 ms (its option key-delay-ms), a USB
 * keyboard is asked as often; QEMU discards all after about 340 that wait.
 */
const PAUSE = 15;

/**
 * Send a character as keys (RFC 6143, section 7.5.4).
 * @returns {number} of presses and releases
 */
function typeCharacter(rfb, one) {
  const code = one.codePointAt(0);
  // Keysyms of X11: Latin-1 as it is, other characters by their code point.
  const keysym = one === '\n' ? 0xff0d : one === '\t' ? 0xff09
    : code < 0x100 ? code : 0x1000000 + code;
  const shifted = SHIFTED.test(one);
  if (shifted) {
    rfb.sendKey(SHIFT, 'ShiftLeft', true);
  }
  rfb.sendKey(keysym, null);
  if (shifted) {
    rfb.sendKey(SHIFT, 'ShiftLeft', false);
  }
  return shifted ? 4 : 2;
}

/**
 * The WebSocket as noVNC uses it, without the text messages.
 *
 * It begins with the first message of the display, when the WebSocket has been
 * open for some time.
 */
class Channel {
  constructor(socket) {
    this.socket = socket;
    this.protocol = socket.protocol;
    this.binaryType = 'arraybuffer';
    this.waiting = [];
    this.handler = null;
    this.onopen = null;
    this.onclose = null;
    this.onerror = null;
  }

  get readyState() {
    return this.socket.readyState;
  }

  get bufferedAmount() {
    return this.socket.bufferedAmount;
  }

  set onmessage(handler) {
    this.handler = handler;
    for (const data of this.waiting.splice(0)) {
      handler?.({data});
    }
  }

  get onmessage() {
    return this.handler;
  }

  deliver(data) {
    if (this.handler) {
      this.handler({data});
    } else {
      this.waiting.push(data);
    }
  }

  send(data) {
    this.socket.send(data);
  }

  // The connection decides when its WebSocket ends.
  close() {
    queueMicrotask(() => this.end());
  }

  /** Tell noVNC that it has ended. */
  end() {
    this.handler = null;
    this.onclose?.(new CloseEvent('close'));
  }
}
