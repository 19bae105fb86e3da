// SPDX-License-Identifier: Apache-2.0
// Certificates that the servers of a machine's images are verified against.

import {Panel, button, confirm, field, fill, form, h, say, select, table,
  time} from './dom.js';
import {may, members, post, remove} from './redfish.js';
import {t} from './texts.js';
import {Heading, showPanels} from './view.js';

/** Show the certificates of a machine's devices. */
export async function open(view, context) {
  const heading = new Heading(context, 'certificates');
  await heading.refresh();
  const media = heading.system.VirtualMedia?.['@odata.id'];
  const devices = (media ? await members(media) : []).filter(
    (one) => one.Certificates);
  if (!devices.length || !may('ConfigureManager')) {
    fill(view, heading.element, h('p', {}, t(
      devices.length ? 'needsAdministrator' : 'noMedia')));
    return undefined;
  }
  const list = new Panel(t('view.certificates'), async () => (
    await Promise.all(devices.map(async (device) => (
      await members(device.Certificates['@odata.id'])).map(
      (one) => ({device: device.Name, ...one}))))).flat(),
  (found) => table(t('view.certificates'), [t('device'), t('subject'),
    t('issuer'), t('validUntil'), t('action')], found.map((one) => [
    one.device, one.Subject?.CommonName || '', one.Issuer?.CommonName || '',
    time(one.ValidNotAfter),
    button(t('removeCertificate'), async () => {
      if (await confirm(t('confirmRemoveCertificate', {
        name: one.Subject?.CommonName || one.Id}), t('removeCertificate'))) {
        await remove(one['@odata.id']);
        say(t('certificateRemoved'));
        await list.reset();
      }
    }, {id: `remove-${one['@odata.id']}`, class: 'danger'})]),
  t('noCertificates')));
  const add = new Panel(t('addCertificate'), async () => 1, () => {
    const device = select(devices.map((one) => [
      one.Certificates['@odata.id'], one.Name]),
    devices[0].Certificates['@odata.id'], {id: 'device'});
    const text = h('textarea', {id: 'pem', required: true, rows: '8',
      spellcheck: 'false', placeholder: '-----BEGIN CERTIFICATE-----'});
    return form(async () => {
      await post(device.value, {CertificateString: text.value,
        CertificateType: 'PEM'});
      say(t('certificateAdded'));
      await Promise.all([add.reset(), list.reset()]);
    }, t('addCertificate'), field(t('device'), device),
    field(t('pem'), text, t('pemHint')));
  });
  return showPanels(view, [heading.element,
    h('p', {}, t('certificatesHint'))], [list, add], heading);
}
