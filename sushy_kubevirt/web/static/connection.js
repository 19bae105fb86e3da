// SPDX-License-Identifier: Apache-2.0
// The WebSocket of a console. Binary messages are what the port sends; text
// messages are sentences of the BMC about the state of the connection.

import {ROOT, get, openSocket} from './redfish.js';
import {t} from './texts.js';

/** Shortest and longest pause before a lost BMC is tried again. */
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10000;

/** Codes after which the user decides (RFC 6455, section 7.4). */
const NORMAL = 1000;
const POLICY = 1008;
const OWN_CODES = 4000;

/**
 * A WebSocket that is opened again after the BMC was lost.
 *
 * `receive` gets each binary message (ArrayBuffer), `opened` and `closed` are
 * called for each WebSocket, `notice` with sentences for the user and whether
 * the user has to act.
 */
export class Connection {
  constructor(path, {receive, notice, opened = () => {},
    closed = () => {}}) {
    Object.assign(this, {path, receive, notice, opened, closed});
    this.pause = FIRST_PAUSE;
    this.timer = null;
    this.ended = false;
    this.connect();
  }

  /** Open the WebSocket. */
  connect() {
    clearTimeout(this.timer);
    if (this.pause === FIRST_PAUSE) {
      this.notice(t('connecting'), false);
    }
    const socket = openSocket(this.path);
    this.socket = socket;
    let accepted = false;
    socket.onopen = () => {
      accepted = true;
      this.notice('', false);
      this.opened(socket);
    };
    socket.onmessage = (event) => {
      this.pause = FIRST_PAUSE;
      if (typeof event.data === 'string') {
        this.notice(event.data, false);
      } else {
        this.receive(event.data);
      }
    };
    socket.onclose = (event) => {
      if (this.socket !== socket) {
        return;
      }
      this.closed();
      if (this.ended) {
        return;
      }
      if (event.code === NORMAL || event.code === POLICY
          || event.code >= OWN_CODES) {
        this.notice(event.reason || t('disconnected'), true);
        return;
      }
      if (accepted) {
        this.notice(event.reason || t('consoleLost'), false);
      } else {
        this.explain();
      }
      this.timer = setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE);
    };
  }

  /**
   * Say why a WebSocket was not opened, which a browser does not tell: whether
   * the BMC answers other requests.
   */
  async explain() {
    let answers = true;
    try {
      await get(ROOT);
    } catch {
      answers = false;
    }
    if (!this.ended && this.socket.readyState !== WebSocket.OPEN) {
      this.notice(t(answers ? 'consoleRefused' : 'consoleAway'), false);
    }
  }

  /** Send bytes or text, if there is a connection. */
  send(data) {
    if (this.socket.readyState === WebSocket.OPEN) {
      this.socket.send(data);
    }
  }

  /** Close it for good. */
  end() {
    this.ended = true;
    clearTimeout(this.timer);
    this.socket.close();
  }
}
