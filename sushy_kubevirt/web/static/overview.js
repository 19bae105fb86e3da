// SPDX-License-Identifier: Apache-2.0
// Power, boot and inventory of a machine.

import {Panel, button, confirm, facts, field, fill, form, h, say, select, table,
  time} from './dom.js';
import {get, getIfServed, may, members, patch, post} from './redfish.js';
import {t} from './texts.js';
import {Heading, showPanels} from './view.js';

/** Reset types that end or interrupt the guest. */
const INTERRUPTS = ['ForceOff', 'GracefulShutdown', 'ForceRestart',
  'GracefulRestart', 'PowerCycle', 'PushPowerButton'];

/** Show the overview. */
export function open(view, context) {
  const heading = new Heading(context, 'overview');
  const panels = [powerPanel, bootPanel, orderPanel, inventoryPanel,
    settingsPanel].map((make) => make(heading));
  return showPanels(view, heading.element, panels, heading);
}

function note() {
  return may('ConfigureComponents') ? null
    : h('p', {class: 'hint'}, t('needsOperator'));
}

// Power

function powerPanel(heading) {
  const panel = new Panel(t('power'), async () => {
    const system = await heading.read();
    const action = system.Actions['#ComputerSystem.Reset'];
    return {
      name: system.Name, state: system.PowerState, target: action.target,
      kinds: action['ResetType@Redfish.AllowableValues'],
      since: system.LastResetTime, progress: system.BootProgress?.LastState,
    };
  }, (data) => [
    facts([[t('lastReset'), data.since && data.state !== 'Off'
      ? time(data.since) : null],
    [t('bootProgress'), data.progress && data.progress !== 'None'
      ? t(`boot.${data.progress}`) : null]]),
    note(),
    h('div', {class: 'buttons'}, may('ConfigureComponents')
      ? data.kinds.map((kind) => button(t(`reset.${kind}`), async () => {
        // The heading may have been read after these buttons.
        if (INTERRUPTS.includes(kind) && heading.system.PowerState !== 'Off'
            && !await confirm(t(`confirm.${kind}`, {name: data.name}),
              t(`reset.${kind}`))) {
          return;
        }
        await post(data.target, {ResetType: kind});
        say(t('resetDone', {kind: t(`reset.${kind}`), name: data.name}));
        await Promise.all([panel.refresh(), heading.refresh()]);
      }, {
        id: `reset-${kind}`, title: t(`resetHint.${kind}`),
        class: kind === 'On' && data.state === 'Off' ? 'primary'
          : INTERRUPTS.includes(kind) ? 'danger' : null,
      })) : null),
  ]);
  return panel;
}

// Boot

function choices(boot, name) {
  return boot[`${name}@Redfish.AllowableValues`] || [boot[name]];
}

function bootPanel(heading) {
  const panel = new Panel(t('bootOverride'),
    async () => (await heading.read()).Boot, (boot) => {
      const editable = may('ConfigureComponents');
      const pick = (name, prefix) => select(choices(boot, name).map(
        (one) => [one, t(`${prefix}.${one}`)]), boot[name], {id: name,
        disabled: !editable});
      const enabled = pick('BootSourceOverrideEnabled', 'override');
      const target = pick('BootSourceOverrideTarget', 'target');
      const mode = boot.BootSourceOverrideMode
        ? pick('BootSourceOverrideMode', 'mode') : null;
      const uri = h('input', {type: 'url', id: 'HttpBootUri',
        value: boot.HttpBootUri || '', disabled: !editable});
      const uriField = field(t('httpBootUri'), uri);
      const show = () => {
        uriField.hidden = target.value !== 'UefiHttp';
      };
      target.addEventListener('change', () => {
        if (target.value !== 'None' && enabled.value === 'Disabled') {
          enabled.value = 'Once';
        }
        show();
      });
      show();
      return [note(), form(editable ? async () => {
        const change = {BootSourceOverrideEnabled: enabled.value};
        if (enabled.value !== 'Disabled') {
          change.BootSourceOverrideTarget = target.value;
        }
        if (mode && mode.value !== boot.BootSourceOverrideMode) {
          change.BootSourceOverrideMode = mode.value;
        }
        if (target.value === 'UefiHttp'
            && enabled.value !== 'Disabled') {
          change.HttpBootUri = uri.value;
        }
        await patch(heading.path, {Boot: change});
        say(t('saved'));
        await panel.reset();
      } : null, t('save'),
      field(t('overrideEnabled'), enabled, t('overrideHint')),
      field(t('overrideTarget'), target), uriField,
      mode ? field(t('overrideMode'), mode) : null)];
    });
  return panel;
}

function orderPanel(heading) {
  const panel = new Panel(t('bootOrder'), async () => {
    const system = await heading.read();
    const boot = system.Boot;
    return {
      order: boot.BootOrder || [],
      options: boot.BootOptions
        ? await members(boot.BootOptions['@odata.id']) : [],
      reset: system.Actions['#ComputerSystem.SetDefaultBootOrder']?.target,
    };
  }, ({order, options, reset}) => {
    const editable = may('ConfigureComponents');
    const names = new Map(options.map(
      (one) => [one.BootOptionReference, one.DisplayName]));
    const chosen = [...order];
    const list = h('ol', {class: 'order'});
    const draw = () => {
      const others = [...names.keys()].filter((one) => !chosen.includes(one));
      fill(list, chosen.map((one, i) => h('li', {}, h('div', {},
        h('span', {}, names.get(one) || one),
        editable ? [
          mover('up', '↑', one, i > 0, () => swap(i, i - 1)),
          mover('down', '↓', one, i < chosen.length - 1,
            () => swap(i, i + 1)),
          mover('leave', '×', one, true, () => {
            chosen.splice(i, 1);
          })] : null))),
      editable ? others.map((one) => h('li', {class: 'out'}, h('div', {},
        h('span', {}, t('notInOrder', {name: names.get(one)})),
        mover('add', '+', one, true, () => chosen.push(one))))) : null);
    };
    const swap = (a, b) => {
      [chosen[a], chosen[b]] = [chosen[b], chosen[a]];
    };
    const mover = (what, sign, one, possible, act) => h('button', {
      type: 'button', id: `${what}-${one}`, class: 'small',
      'aria-label': t(`order.${what}`, {name: names.get(one) || one}),
      'aria-disabled': possible ? null : 'true',
      click: () => {
        if (possible) {
          act();
          list.closest('form').dataset.changed = '';
          draw();
        }
      }}, sign);
    draw();
    if (!editable) {
      return [note(), list];
    }
    return [form(async () => {
      await patch(heading.path, {Boot: {BootOrder: chosen}});
      say(t('saved'));
      await panel.reset();
    }, t('save'), list),
    reset ? button(t('defaultOrder'), async () => {
      await post(reset);
      say(t('saved'));
      await panel.reset();
    }, {id: 'default-order'}) : null];
  });
  return panel;
}

// Inventory

function inventoryPanel(heading) {
  return new Panel(t('inventory'), async () => {
    const system = await heading.read();
    const at = (name) => system[name]?.['@odata.id'];
    const below = async (name) => (at(name) ? members(at(name)) : []);
    const [nics, storage, manager] = await Promise.all([
      below('EthernetInterfaces'), below('Storage'),
      getIfServed(system.Links.ManagedBy?.[0]['@odata.id'])]);
    const drives = await Promise.all(storage.flatMap(
      (one) => one.Drives || []).map((one) => get(one['@odata.id'])));
    return {system, nics, drives, manager};
  }, ({system, nics, drives, manager}) => {
    const cpu = system.ProcessorSummary || {};
    const gib = system.MemorySummary?.TotalSystemMemoryGiB;
    return [
      facts([
        [t('uuid'), system.UUID],
        [t('hostName'), system.HostName],
        [t('node'), system.Oem?.SushyKubevirt?.NodeName],
        [t('processors'), cpu.LogicalProcessorCount ? t('processorText', {
          count: cpu.LogicalProcessorCount, sockets: cpu.Count,
          model: cpu.Model || ''}) : null],
        [t('memory'), gib ? t('gib', {gib}) : null],
        [t('machineType'), system.Model],
        [t('serialNumber'), system.SerialNumber],
        [t('firmware'), system.BiosVersion],
        [t('tpm'), system.TrustedModules?.[0]?.InterfaceType],
        [t('bmcVersion'), manager?.FirmwareVersion
          && `${manager.Model} ${manager.FirmwareVersion}`]]),
      h('h3', {}, t('nics')),
      table(t('nics'), [t('name'), t('mac'), t('link')], nics.map((one) => [
        one.Name, one.PermanentMACAddress || one.MACAddress || t('unknown'),
        one.LinkStatus || '']), t('noNics')),
      h('h3', {}, t('drives')),
      table(t('drives'), [t('name'), t('capacity'), t('protocol')],
        drives.map((one) => [one.Name, one.CapacityBytes
          ? bytes(one.CapacityBytes) : t('unknown'), one.Protocol || '']),
        t('noDrives')),
    ];
  });
}

function bytes(count) {
  return t('gib', {gib: Math.round(count / 2 ** 30 * 100) / 100});
}

// Settings of the machine

function settingsPanel(heading) {
  const panel = new Panel(t('settings'), async () => {
    const system = await heading.read();
    return {
      tag: system.AssetTag, indicator: system.IndicatorLED,
      policy: system.PowerRestorePolicy,
      policies: system['PowerRestorePolicy@Redfish.AllowableValues'] || [],
    };
  }, (data) => {
    const disabled = !may('ConfigureComponents');
    const tag = h('input', {value: data.tag || '', id: 'AssetTag', disabled});
    const indicator = select(['Off', 'Lit', 'Blinking'].map(
      (one) => [one, t(`indicator.${one}`)]), data.indicator, {
      id: 'IndicatorLED', disabled});
    const policy = data.policy ? select(data.policies.map(
      (one) => [one, t(`policy.${one}`)]), data.policy, {
      id: 'PowerRestorePolicy', disabled}) : null;
    return [note(), form(disabled ? null : async () => {
      const change = {};
      for (const [name, control, old] of [
        ['AssetTag', tag, data.tag || ''],
        ['IndicatorLED', indicator, data.indicator],
        ['PowerRestorePolicy', policy, data.policy]]) {
        if (control && control.value !== old) {
          change[name] = control.value;
        }
      }
      if (Object.keys(change).length) {
        await patch(heading.path, change);
      }
      say(t('saved'));
      await panel.reset();
    }, t('save'), field(t('assetTag'), tag),
    field(t('indicator'), indicator),
    policy ? field(t('policy'), policy, t('policyHint')) : null)];
  });
  return panel;
}
