// SPDX-License-Identifier: Apache-2.0
// BIOS attributes and Secure Boot, with the values of the next start.

import {Panel, button, checkbox, confirm, facts, field, fill, form, h, say,
  select} from './dom.js';
import {ROOT, get, getIfServed, may, patch, post} from './redfish.js';
import {t} from './texts.js';
import {Heading, showPanels} from './view.js';

/** Show the settings of the firmware. */
export async function open(view, context) {
  const heading = new Heading(context, 'firmware');
  await heading.refresh();
  const panels = [];
  if (heading.system.Bios) {
    panels.push(biosPanel(heading.system.Bios['@odata.id']));
  }
  if (heading.system.SecureBoot) {
    panels.push(secureBootPanel(heading.system.SecureBoot['@odata.id']));
  }
  if (!panels.length) {
    fill(view, heading.element, h('p', {}, t('noFirmware')));
    return undefined;
  }
  return showPanels(view, heading.element, panels, heading);
}

/** Read the registry that describes the attributes; it never changes. */
async function registry(name) {
  const file = await getIfServed(`${ROOT}Registries/${name}`);
  const uri = file?.Location?.[0]?.Uri;
  const found = uri ? await getIfServed(uri) : null;
  return new Map((found?.RegistryEntries.Attributes || []).map(
    (one) => [one.AttributeName, one]));
}

function biosPanel(path) {
  let known = null;
  const panel = new Panel(t('bios'), async () => {
    const bios = await get(path);
    known = known || await registry(bios.AttributeRegistry);
    const settings = bios['@Redfish.Settings']?.SettingsObject['@odata.id'];
    const pending = settings ? await get(settings) : null;
    return {present: bios.Attributes, pending: pending?.Attributes || {},
      settings, reset: bios.Actions?.['#Bios.ResetBios']?.target};
  }, ({present, pending, settings, reset}) => {
    const editable = settings && may('ConfigureComponents');
    const controls = [];
    const rows = Object.entries(present).map(([name, value]) => {
      const entry = known.get(name);
      const next = pending[name] ?? value;
      let control;
      if (editable && !entry?.ReadOnly) {
        control = entry?.Type === 'Enumeration'
          ? select(entry.Value.map((one) => [one.ValueName,
            one.ValueDisplayName || one.ValueName]), next, {id: `a-${name}`})
          : h('input', {value: String(next), id: `a-${name}`});
        controls.push([name, control, next]);
      } else {
        control = h('output', {id: `a-${name}`}, String(next));
      }
      const hint = [entry?.HelpText, next === value ? null
        : t('pending', {value: String(value)})].filter(Boolean).join(' ');
      return field(entry?.DisplayName || name, control, hint);
    });
    if (!editable) {
      return [h('p', {class: 'hint'}, t('needsOperator')), rows];
    }
    return [form(async () => {
      const change = {};
      for (const [name, control, old] of controls) {
        if (control.value !== String(old)) {
          change[name] = control.value;
        }
      }
      if (Object.keys(change).length) {
        await patch(settings, {Attributes: change});
      }
      say(t('savedForNextStart'));
      await panel.reset();
    }, t('save'), rows),
    reset ? button(t('resetBios'), async () => {
      if (await confirm(t('confirmResetBios'), t('resetBios'))) {
        await post(reset);
        say(t('biosReset'));
        await panel.reset();
      }
    }, {id: 'reset-bios', class: 'danger'}) : null];
  });
  return panel;
}

function secureBootPanel(path) {
  const panel = new Panel(t('secureBoot'), () => get(path), (data) => {
    const disabled = !may('ConfigureComponents');
    const box = h('input', {id: 'secure-boot', disabled});
    box.checked = data.SecureBootEnable;
    const now = data.SecureBootCurrentBoot === 'Enabled';
    return [
      facts([[t('secureBootNow'), t(now ? 'enabled' : 'disabled')],
        [t('secureBootMode'), data.SecureBootMode]]),
      now === data.SecureBootEnable ? null : h('p', {class: 'box'},
        t('secureBootPending')),
      form(disabled ? null : async () => {
        await patch(path, {SecureBootEnable: box.checked});
        say(t('savedForNextStart'));
        await panel.reset();
      }, t('save'), checkbox(t('secureBootEnable'), box))];
  });
  return panel;
}
