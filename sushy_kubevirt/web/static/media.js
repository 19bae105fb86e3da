// SPDX-License-Identifier: Apache-2.0
// Virtual media: insert by URL, upload from this computer, eject.

import {Panel, button, checkbox, confirm, facts, field, fill, form, h, say}
  from './dom.js';
import {repeat} from './events.js';
import {authentication, failure, get, getIfServed, may, members, patch, post,
  unreachable} from './redfish.js';
import {t} from './texts.js';
import {Heading, conditions, showPanels} from './view.js';

/** Milliseconds between two reads of a running import. */
const POLL = 1000;

/** Uploads of this page: path of the device to {sending, bar, name}. */
const uploads = new Map();

addEventListener('session-end', () => {
  uploads.forEach((one) => one.sending.abort());
});
addEventListener('beforeunload', (event) => {
  if (uploads.size) {
    event.preventDefault();
  }
});

/** Show the devices. */
export async function open(view, context) {
  const heading = new Heading(context, 'media');
  await heading.refresh();
  const collection = heading.system.VirtualMedia?.['@odata.id'];
  if (!collection) {
    fill(view, heading.element, h('p', {}, t('noMedia')));
    return undefined;
  }
  const devices = await members(collection);
  const panels = devices.map((one) => devicePanel(one));
  const stop = await showPanels(view, heading.element, panels, heading);
  const end = repeat(POLL, () => Promise.all(
    panels.filter((one) => one.running).map((one) => one.refresh())));
  return () => {
    end();
    stop();
  };
}

function devicePanel(first) {
  const path = first['@odata.id'];
  const panel = new Panel(first.Name, async () => {
    const device = await get(path);
    const task = device.Inserted ? await findTask(device) : null;
    panel.running = ['Starting', 'Running', 'New'].includes(task?.TaskState);
    return {device, task, uploading: uploads.has(path)};
  }, ({device, task, uploading}) => (device.Inserted || uploading
    ? occupied(panel, device, task) : empty(panel, device)));
  return panel;
}

/** Return the task of the import into a device, or null. */
function findTask(device) {
  return getIfServed(device.Oem?.SushyKubevirt?.Task?.['@odata.id']);
}

function occupied(panel, device, task) {
  const upload = uploads.get(device['@odata.id']);
  const failed = task?.TaskStatus === 'Critical';
  return [
    device.Status?.Health === 'OK' ? null : h('div', {class:
      device.Status?.Health === 'Critical' ? 'box bad' : 'box'},
    conditions(device.Status).map((one) => h('p', {}, one))),
    facts([[t('image'), device.Image], [t('imageName'), device.ImageName],
      [t('writeProtected'), t(device.WriteProtected ? 'yes' : 'no')],
      [t('imageUser'), device.UserName],
      [t('task'), task ? t(`task.${task.TaskState}`) : null]]),
    upload ? upload.bar.element : null,
    panel.running ? progress(t('importing'), task.PercentComplete) : null,
    failed ? (task.Messages || []).map((one) => h('p', {}, one.Message, ' ',
      one.Resolution || '')) : null,
    may('ConfigureManager') ? h('div', {class: 'buttons'},
      button(t('eject'), async () => {
        // An upload that begins is not in the device yet.
        const image = device.ImageName || upload?.name || device.Image;
        if (!await confirm(t('confirmEject', {image}), t('eject'))) {
          return;
        }
        uploads.get(device['@odata.id'])?.sending.abort();
        await post(device.Actions['#VirtualMedia.EjectMedia'].target);
        say(t('ejected'));
        await panel.reset();
      }, {id: `eject-${device.Id}`, class: 'danger'})) : null,
  ];
}

/** A progress bar with its text. */
class Progress {
  constructor(label) {
    this.bar = h('progress', {max: '100', 'aria-label': label});
    this.text = h('span');
    this.element = h('p', {class: 'progress'}, label, ' ', this.bar, ' ',
      this.text);
  }

  set(percent) {
    this.bar.value = percent;
    this.text.textContent = `${Math.floor(percent)} %`;
  }
}

function progress(label, percent) {
  const bar = new Progress(label);
  if (percent !== null && percent !== undefined) {
    bar.set(percent);
  }
  return bar.element;
}

function empty(panel, device) {
  if (!may('ConfigureManager')) {
    return [h('p', {}, t('emptyDevice')),
      h('p', {class: 'hint'}, t('needsAdministrator'))];
  }
  return [h('p', {}, t('emptyDevice')), byUrl(panel, device),
    byUpload(panel, device)];
}

function protection(device) {
  const box = h('input', {id: `protect-${device.Id}`});
  box.checked = true;
  return box;
}

function byUrl(panel, device) {
  const id = device.Id;
  const url = h('input', {type: 'url', required: true, id: `url-${id}`,
    placeholder: 'https://'});
  const user = h('input', {id: `image-user-${id}`, autocomplete: 'off'});
  const password = h('input', {type: 'password', id: `image-password-${id}`,
    autocomplete: 'off'});
  const protect = protection(device);
  const verify = h('input', {id: `verify-${id}`});
  verify.checked = device.VerifyCertificate !== false;
  return form(async () => {
    if (verify.checked !== device.VerifyCertificate) {
      await patch(device['@odata.id'], {VerifyCertificate: verify.checked});
    }
    await post(device.Actions['#VirtualMedia.InsertMedia'].target, {
      Image: url.value, WriteProtected: protect.checked,
      ...(user.value ? {UserName: user.value} : {}),
      ...(password.value ? {Password: password.value} : {}),
    }, {Prefer: 'respond-async'});
    say(t('inserted'));
    await panel.reset();
  }, t('insert'), h('h3', {}, t('insertByUrl')),
  field(t('imageUrl'), url),
  h('details', {}, h('summary', {}, t('credentials')),
    field(t('imageUser'), user), field(t('imagePassword'), password)),
  checkbox(t('writeProtected'), protect),
  checkbox(t('verify'), verify));
}

function byUpload(panel, device) {
  const target = device.Oem?.SushyKubevirt?.MultipartHttpPushUri;
  const heading = h('h3', {}, t('upload'));
  if (!target) {
    return [heading, h('p', {class: 'hint'}, t('noUpload'))];
  }
  const file = h('input', {type: 'file', required: true,
    id: `file-${device.Id}`});
  const protect = protection(device);
  protect.id = `protect-upload-${device.Id}`;
  const path = device['@odata.id'];
  return form(async () => {
    const name = file.files[0].name;
    // It continues while other views are shown.
    send(target, file.files[0], protect.checked, path).then(
      () => say(t('uploaded', {name})),
      (error) => error && say(error)).finally(() => {
      uploads.get(path).bar.element.remove();
      uploads.delete(path);
      panel.reset().catch(() => {});
    });
    await panel.reset();
  }, t('uploadButton'), heading, field(t('file'), file, t('uploadHint')),
  checkbox(t('writeProtected'), protect));
}

/** Send a file; XMLHttpRequest, because fetch reports no progress. */
function send(target, file, protect, path) {
  const data = new FormData();
  data.append('InsertParameters', new Blob([JSON.stringify({
    WriteProtected: protect})], {type: 'application/json'}));
  data.append('ImageFile', file, file.name);
  const sending = new XMLHttpRequest();
  const bar = new Progress(t('uploading'));
  uploads.set(path, {sending, bar, name: file.name});
  return new Promise((resolve, reject) => {
    sending.open('POST', target);
    for (const [name, value] of Object.entries(authentication())) {
      sending.setRequestHeader(name, value);
    }
    sending.setRequestHeader('Accept', 'application/json');
    sending.upload.onprogress = (event) => {
      bar.set(event.loaded / event.total * 100);
    };
    sending.onload = async () => {
      if (sending.status < 400) {
        resolve();
      } else {
        reject(await failure(sending.status,
          async () => JSON.parse(sending.responseText)));
      }
    };
    sending.onerror = () => reject(unreachable());
    sending.onabort = () => reject(null);
    sending.send(data);
  });
}
