// SPDX-License-Identifier: Apache-2.0
// Client of the Redfish service that serves this page (DSP0266).

import {t} from './texts.js';

export const ROOT = '/redfish/v1/';

const STORED = 'sushy-kubevirt.session';

/** Milliseconds until a request without an answer counts as lost. */
const TIMEOUT = 60000;

/** An error of the service, or of the connection to it. */
export class RedfishError extends Error {
  /**
   * @param {number} status HTTP status code; 0 without an answer
   * @param {Array} entries messages with Message and Resolution
   */
  constructor(status, entries) {
    super(entries.map((entry) => entry.Message).join(' '));
    this.status = status;
    this.entries = entries;
    /** Whether the session has ended, which the whole page handles. */
    this.ended = false;
  }
}

/** The session: token, uri, user, privileges; null without one. */
let session = read();

/** Number of changes that were requested. */
let changes = 0;

/** Called when the service does not accept the session any more. */
let whenEnded = () => {};

/** Called with true and false when the service is lost and found. */
let whenLost = () => {};

/** Register what to do when a session ends and when the service is lost. */
export function observe(ended, lost) {
  whenEnded = ended;
  whenLost = lost;
}

function read() {
  // Of this tab, until it is closed.
  try {
    return JSON.parse(sessionStorage.getItem(STORED));
  } catch {
    return null;
  }
}

function store(value) {
  session = value;
  if (value === null) {
    sessionStorage.removeItem(STORED);
    dispatchEvent(new Event('session-end'));
  } else {
    sessionStorage.setItem(STORED, JSON.stringify(value));
  }
}

/** Return the present session, or null. */
export function current() {
  return session;
}

/** Return whether the user has a privilege, such as ConfigureManager. */
export function may(privilege) {
  return session === null || !session.privileges
    || session.privileges.includes(privilege);
}

/** Return how many changes were made: what was read before may be outdated. */
export function changeCount() {
  return changes;
}

/** Return the headers that authenticate a request. */
export function authentication() {
  return session === null ? {} : {'X-Auth-Token': session.token};
}

/**
 * Send a request.
 * @param {string} method
 * @param {string} path
 * @param {object} [body] JSON
 * @param {object} [headers]
 * @returns {Promise<Response>} with a status below 400
 * @throws {RedfishError}
 */
export async function request(method, path, body, headers) {
  const sender = session;
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: {
        Accept: 'application/json',
        ...(body === undefined ? {} : {'Content-Type': 'application/json'}),
        ...authentication(), ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      // No password that the browser has stored, and no dialog for one.
      credentials: 'omit',
      cache: 'no-store',
      signal: AbortSignal.timeout(TIMEOUT),
    });
  } catch {
    whenLost(true);
    throw unreachable();
  } finally {
    if (method !== 'GET') {
      changes += 1;
    }
  }
  whenLost(false);
  if (response.status >= 400) {
    throw await failure(response.status, () => response.json(), sender);
  }
  return response;
}

/** Make the error of a service that does not answer. */
export function unreachable() {
  return new RedfishError(0, [{
    Message: t('unreachable'), Resolution: t('unreachableRemedy')}]);
}

/**
 * Make the error of a response, and end the session on 401.
 * @param {number} status
 * @param {function} json asynchronous, returns the body
 * @param {?object} sender session with which it was requested
 */
export async function failure(status, json, sender = session) {
  let entries;
  try {
    const {error} = await json();
    entries = error['@Message.ExtendedInfo'] || [{Message: error.message}];
  } catch {
    entries = [{Message: t('httpError', {status})}];
  }
  const error = new RedfishError(status, entries);
  if (status === 401 && sender !== null) {
    error.ended = true;
    if (sender.token === session?.token) {
      store(null);
      whenEnded();
    }
  }
  return error;
}

/** GET a resource; an object. */
export async function get(path) {
  const response = await request('GET', path);
  try {
    return await response.json();
  } catch {
    whenLost(true);
    throw unreachable();
  }
}

/** GET the members of a collection, expanded. */
export async function members(path) {
  const found = await get(`${path}?$expand=.`);
  return found.Members;
}

/** GET a resource; null if the service does not have it. */
export async function getIfServed(path) {
  try {
    return path ? await get(path) : null;
  } catch (error) {
    if (error.status === 404 || error.status === 403) {
      return null;
    }
    throw error;
  }
}

/** POST an action or a new resource. */
export function post(path, body, headers) {
  return request('POST', path, body ?? {}, headers);
}

/** PATCH properties. */
export function patch(path, body) {
  return request('PATCH', path, body);
}

/** DELETE a resource. */
export function remove(path) {
  return request('DELETE', path);
}

/**
 * Open a session.
 * @returns {Promise<?string>} path of the account whose password has to be
 *   changed first, or null
 */
export async function login(user, password) {
  const response = await post(`${ROOT}SessionService/Sessions`, {
    UserName: user, Password: password, Context: 'web page'});
  const body = await response.json();
  const made = {token: response.headers.get('X-Auth-Token'),
    uri: body['@odata.id'], user: body.UserName, privileges: ['Login']};
  // It is stored when the account can be used.
  session = made;
  const change = (body['@Message.ExtendedInfo'] || []).find(
    (entry) => entry.MessageId.endsWith('.PasswordChangeRequired'));
  if (change) {
    return change.MessageArgs[0];
  }
  const found = await Promise.all((body.Roles || []).map(
    (role) => get(`${ROOT}AccountService/Roles/${encodeURIComponent(role)}`)));
  store({...made, roles: body.Roles || [],
    privileges: found.flatMap((role) => role.AssignedPrivileges)});
  return null;
}

/** Close the session, which may have ended already. */
export async function logout() {
  const closing = session && remove(session.uri);
  store(null);
  try {
    await closing;
  } catch (error) {
    if (error.status !== 401 && error.status !== 404) {
      throw error;
    }
  }
}

/**
 * Open a WebSocket of the service with the session.
 * @param {string} path
 * @returns {WebSocket}
 */
export function openSocket(path) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol.replace('http', 'ws');
  // A browser sets no header of a WebSocket but this one.
  const socket = new WebSocket(url, ['binary', ...(
    session === null ? [] : [`x-auth-token.${session.token}`])]);
  socket.binaryType = 'arraybuffer';
  return socket;
}
