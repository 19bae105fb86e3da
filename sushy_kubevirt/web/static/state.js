// SPDX-License-Identifier: Apache-2.0
// Words for states of machines.

import {t} from './texts.js';

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
