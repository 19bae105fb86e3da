// SPDX-License-Identifier: Apache-2.0
// Events of the service (Server-Sent Events), and regular reads where there
// are none: changes without an event, and services with too many streams.

import {ROOT, authentication, current, failure} from './redfish.js';

/** Milliseconds between two reads: with a stream, and without. */
const WITH_STREAM = 5000;
const WITHOUT_STREAM = 4000;

/** Shortest and longest pause before the stream is opened again. */
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30000;

const listeners = new Set();
let stop = null;
let streaming = false;

/** Return whether all events arrive; else listeners read more often. */
export function isStreaming() {
  return streaming;
}

/**
 * Call a function after changes.
 * @param {function} listener of a list of events, which is empty for a
 *   regular read
 * @returns {function} that ends it
 */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(events) {
  for (const one of [...listeners]) {
    one(events);
  }
}

/**
 * Call an asynchronous function regularly, but not while the page is hidden.
 * @param {number} pause milliseconds between two calls
 * @param {function} action its errors are ignored
 * @returns {function} that ends it
 */
export function repeat(pause, action) {
  let timer = null;
  const next = async () => {
    if (!document.hidden) {
      await action().catch(() => {});
    }
    timer = timer && setTimeout(next, pause);
  };
  timer = setTimeout(next, pause);
  return () => {
    clearTimeout(timer);
    timer = null;
  };
}

/** Start to observe the service. */
export function start() {
  end();
  let running = true;
  let reading = null;
  let wake = () => {};
  let last = Date.now();
  const timer = setInterval(() => {
    const now = Date.now();
    if (!document.hidden
        && now - last >= (streaming ? WITH_STREAM : WITHOUT_STREAM)) {
      last = now;
      tell([]);
    }
  }, 1000);
  const seen = () => {
    if (document.hidden) {
      // A browser has six connections to a host, for all of its tabs, and the
      // service has few streams.
      reading?.abort();
    } else {
      last = Date.now();
      tell([]);
      wake();
    }
  };
  document.addEventListener('visibilitychange', seen);
  stop = () => {
    running = false;
    clearInterval(timer);
    document.removeEventListener('visibilitychange', seen);
    reading?.abort();
  };
  (async () => {
    let pause = FIRST_PAUSE;
    let id = null;
    while (running) {
      if (document.hidden) {
        await new Promise((resolve) => {
          wake = resolve;
        });
        continue;
      }
      reading = new AbortController();
      try {
        for await (const event of stream(reading.signal, id)) {
          if (!streaming) {
            streaming = true;
            pause = FIRST_PAUSE;
            // What was missed in between.
            tell([]);
          }
          if (event) {
            id = event.Id;
            tell(event.Events);
          }
        }
      } catch {
        // Refused or lost; the regular reads tell the user.
      }
      if (running) {
        if (streaming) {
          streaming = false;
          if (!document.hidden) {
            // Whether the service is lost.
            tell([]);
          }
        }
        await new Promise((resolve) => setTimeout(resolve, pause));
        pause = Math.min(pause * 2, LONGEST_PAUSE);
      }
    }
  })();
}

/** Stop to observe the service. */
export function end() {
  stop?.();
  stop = null;
  streaming = false;
}

/** Read the stream; yields null when it is open, then events. */
async function* stream(signal, id) {
  const sender = current();
  const response = await fetch(`${ROOT}EventService/SSE`, {
    headers: {Accept: 'text/event-stream', ...authentication(),
      ...(id ? {'Last-Event-ID': id} : {})},
    credentials: 'omit', cache: 'no-store', signal,
  });
  if (!response.ok) {
    throw await failure(response.status, () => response.json(), sender);
  }
  yield null;
  const reader = response.body.pipeThrough(new TextDecoderStream())
    .getReader();
  let text = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) {
      return;
    }
    text += value;
    const lines = text.split('\n');
    text = lines.pop();
    for (const line of lines) {
      if (line.startsWith('data:')) {
        yield JSON.parse(line.slice(5));
      }
    }
  }
}
