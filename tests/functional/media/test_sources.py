# SPDX-License-Identifier: Apache-2.0
"""Sources of virtual media: uploads, HTTPS certificates and HTTP boot."""

import signal
import subprocess
import sys

from kubevirt_sandbox.testing import certificates
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine.media import reconciler
from sushy_kubevirt.machine import power_state
from tests.fixtures import checkout
from tests.fixtures import image_server
from tests.fixtures import machine_case
from tests.fixtures import media_case
from tests.fixtures import sandbox

R = power_state.ResetType
S = media_case.S
HTTP = boot.Target.UEFI_HTTP

_UPLOADER = '''
import sys, time
from sushy_kubevirt.kube import connection
from sushy_kubevirt.machine import cluster, media, options
kubeconfig, namespace, name, url, proxy, ca = sys.argv[1:]
made = cluster.Cluster(
    connection.Connection.from_options(kubeconfig), (namespace,),
    options=options.Options(media=options.MediaOptions(
        allow_loopback=True, mode='upload', upload_proxy_url=proxy,
        upload_proxy_ca=ca)))
machine = made.machine(name)
machine.insert_media('Cd', media.Source(url))
made.media.wait(lambda: (machine.medium('Cd').progress or 0) > 1, 30)
print('begun', flush=True)
time.sleep(60)
'''


class StorageTestCase(media_case.MediaTestCase):

    def test_access_mode_of_unknown_storage_class(self):
        # CDI's StorageProfile of such a class has no recommendations.
        self.sandbox.request(
            'POST', '/apis/storage.k8s.io/v1/storageclasses', {
                'metadata': {'name': 'unknown'},
                'provisioner': 'example.test/unknown'}, expect=201)
        self.addCleanup(
            self.sandbox.request, 'DELETE',
            '/apis/storage.k8s.io/v1/storageclasses/unknown')
        for mode, state in ((None, S.READY), ('auto', S.FAILED)):
            chosen = {'access_mode': mode} if mode else {}
            machine = self.machine(
                'Halted', self.bmc({'storage_class': 'unknown', **chosen}),
                change=media_case.drop_medium)
            machine.insert_media('Cd', self.source())
            medium = self.wait_state(machine, state)
            if mode:
                self.assertEqual('ErrClaimNotValid', medium.reason)
                self.assertIn('no accessMode', medium.message)
            machine.eject_media('Cd')
            self.wait_clean(machine)


class UploadTestCase(media_case.UploadingTestCase):

    def test_uploads_image(self):
        machine = self.machine('Halted', self.uploading(),
                               change=media_case.drop_medium)
        source = self.source(
            self.url('private/size-3000000.iso'),
            username=self.images.USER, password=self.images.PASSWORD)
        machine.insert_media('Cd', source)
        medium = self.wait_state(machine, S.READY)
        self.assertEqual(source.url, medium.url)
        [volume] = self.sandbox.list('datavolumes')
        self.assertEqual({'upload': {}}, volume['spec']['source'])
        self.assertEqual([], self.owned('secrets', machine))
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_auto_uploads_if_cdi_cannot_import(self):
        bmc = self.bmc(self.proxy)
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        for fields, kind in (({}, 'http'), ({'verify': False}, 'upload'),
                             ({'method': 'Upload'}, 'upload')):
            machine.insert_media('Cd', self.source(**fields))
            self.wait_state(machine, S.READY)
            self.until('one DataVolume',
                       lambda: len(self.data_volumes(machine)) == 1)
            self.assertIn(kind, self.sandbox.get(
                'datavolumes', machine.medium('Cd').data_volume)[
                    'spec']['source'])
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_upload_without_proxy_is_unsupported(self):
        machine = self.machine('Halted', self.bmc({'mode': 'upload'}),
                               change=media_case.drop_medium)
        self.assertRaises(errors.Unsupported, machine.insert_media, 'Cd',
                          self.source())
        self.assertIsNone(self.annotation(machine))

    def test_unreachable_proxy_fails_upload(self):
        machine = self.machine(
            'Halted', self.bmc({
                'mode': 'upload', 'upload_proxy_url': 'http://127.0.0.1:9'}),
            change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        medium = self.wait_state(machine, S.FAILED)
        self.assertEqual('UploadFailed', medium.reason)
        self.assertIn('127.0.0.1:9', medium.message)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_eject_ends_upload(self):
        bmc = self.uploading()
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        machine.insert_media('Cd', self.source(
            self.url('size-50000000000.iso')))
        self.assertTrue(bmc.media.wait(
            lambda: machine.medium('Cd').progress, 15))
        machine.eject_media('Cd')
        self.wait_clean(machine)
        self.until('end of the upload', lambda: not bmc.media.uploads)

    def test_upload_of_killed_bmc_fails(self):
        self.addCleanup(setattr, reconciler, 'UPLOAD_SECONDS',
                        reconciler.UPLOAD_SECONDS)
        reconciler.UPLOAD_SECONDS = 4
        machine = self.machine('Halted', change=media_case.drop_medium)
        with subprocess.Popen(
                [sys.executable, '-c', _UPLOADER,
                 str(self.account), sandbox.NAMESPACE, machine.name,
                 self.url('size-50000000000.iso'), *self.proxy.values()],
                cwd=checkout.ROOT, stdout=subprocess.PIPE, text=True) as other:
            self.assertEqual('begun\n', other.stdout.readline())
            self.wait_state(machine, S.IMPORTING)
            other.send_signal(signal.SIGKILL)
        medium = self.wait_state(machine, S.FAILED, seconds=20)
        self.assertEqual('UploadInterrupted', medium.reason)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.wait_clean(machine)


class HttpBootTestCase(media_case.MediaTestCase):

    def uefi(self, **media_options):
        machine = self.machine('Manual', self.bmc(media_options),
                               change=lambda spec: (
            media_case.drop_drive(spec), spec['domain']['firmware'].update(
                bootloader={'efi': {'secureBoot': False}})))
        self.until('CDI', lambda: machine.cluster.media.cdi.served)
        return machine

    def test_http_boot_once(self):
        machine = self.uefi()
        spec = self.sandbox.vm(machine.name)['spec']
        url = self.url()
        machine.set_boot(HTTP, boot.Enabled.ONCE, http_uri=url)
        self.assertEqual(
            (HTTP, boot.Enabled.ONCE, url),
            (machine.boot().target, machine.boot().enabled,
             machine.boot().http_uri))
        self.assertIsNone(machine.medium('Cd'))
        self.wait_state(machine, S.READY, 'HttpBoot')
        machine.reset(R.ON)
        self.assertEqual('cdrom:bmc-http', self.sandbox.wait_boot(
            machine.name, 1)['device'])
        self.becomes(machine, machine_case.ON)
        self.until('override disabled', lambda: machine.boot().enabled
                   is boot.Enabled.DISABLED)
        # The override reads as disabled before the drive is removed. The
        # DataVolume stays, because the guest reads from what it booted.
        self.until('no drive', lambda: self.drive_of(machine, 'bmc-http')
                   == (None, None))
        self.stays(lambda: self.data_volumes(machine), 1.5)
        self.wait_override_removed(machine.name)
        self.sandbox.guest_does(machine.name, 'reboot')
        self.assertEqual('Hdd', self.sandbox.wait_boot(machine.name, 2)[
            'class'])
        self.until('no DataVolume', lambda: not self.data_volumes(machine))
        self.until('original spec', lambda: self.sandbox.vm(machine.name)[
            'spec'] == spec)

    def test_changed_target_deletes_image(self):
        machine = self.uefi()
        for settings in ((boot.Target.PXE, boot.Enabled.ONCE),
                         (None, boot.Enabled.DISABLED)):
            machine.set_boot(HTTP, boot.Enabled.ONCE, http_uri=self.url())
            self.wait_state(machine, S.READY, 'HttpBoot')
            machine.set_boot(*settings)
            self.assertEqual((None, None),
                             self.drive_of(machine, 'bmc-http'))
            self.until('no DataVolume', lambda: not self.data_volumes(machine))
        machine.set_boot(HTTP, boot.Enabled.CONTINUOUS, http_uri=self.url())
        other = self.url()
        machine.set_boot(http_uri=other)
        self.assertEqual(other, machine.medium('HttpBoot').url)
        machine.set_boot(boot.Target.NONE, http_uri='')
        self.wait_clean(machine)

    def test_http_boot_with_virtual_medium(self):
        machine = self.uefi()
        machine.insert_media('Cd', self.source())
        machine.set_boot(HTTP, boot.Enabled.ONCE, http_uri=self.url())
        self.wait_state(machine, S.READY, 'HttpBoot')
        machine.reset(R.ON)
        self.assertEqual('cdrom:bmc-http', self.sandbox.wait_boot(
            machine.name, 1)['device'])
        machine.reset(R.FORCE_OFF)
        self.assertEqual(S.READY, self.wait_state(machine, S.READY).state)
        self.until('one DataVolume', lambda: self.data_volumes(machine) == [
            machine.medium('Cd').data_volume])

    def test_refuses_invalid_http_boot(self):
        machine = self.uefi()
        self.assertRaises(errors.InvalidValue, machine.set_boot, HTTP,
                          boot.Enabled.ONCE)
        self.assertRaises(errors.MediaUnreachable, machine.set_boot, HTTP,
                          boot.Enabled.ONCE,
                          http_uri=self.images.url + '/missing')
        self.assertRaises(errors.InvalidValue, machine.set_boot, HTTP,
                          http_uri='tftp://x/y')
        legacy = self.machine('Manual')
        self.until('CDI', lambda: legacy.cluster.media.cdi.served)
        self.assertRaises(errors.WrongState, legacy.set_boot, HTTP,
                          boot.Enabled.ONCE, http_uri=self.url())
        for each in machine, legacy:
            self.assertEqual([], self.data_volumes(each))

    def test_refused_change_keeps_pending_http_boot(self):
        machine = self.uefi()
        machine.set_boot(HTTP, boot.Enabled.ONCE, http_uri=self.url())
        medium = self.wait_state(machine, S.READY, 'HttpBoot')
        self.until('completion in the record', lambda: '"ready":true' in (
            self.annotation(machine)))
        before = self.sandbox.vm(machine.name)
        for error, change in (
                (errors.MediaUnreachable,
                 {'http_uri': self.images.url + '/missing'}),
                (errors.InvalidValue,
                 {'http_uri': self.url(), 'order': ('Boot9999',)}),
                (errors.WrongState, {'http_uri': self.url(),
                                     'mode': boot.Mode.LEGACY}),
                (errors.WrongState, {'mode': boot.Mode.LEGACY}),
                (errors.InvalidValue, {'http_uri': ''})):
            self.assertRaises(error, machine.set_boot, **change)
            after = self.sandbox.vm(machine.name)
            self.assertEqual((before['spec'], before['metadata'][
                'annotations']), (after['spec'], after['metadata'][
                    'annotations']), change)
        self.assertEqual([medium.data_volume], self.data_volumes(machine))

    def test_image_goes_if_the_override_is_refused(self):
        machine = self.uefi()
        before = self.sandbox.vm(machine.name)['spec']
        # The reservation of a name is a patch, too.
        self.sandbox.fault(403, verb='PATCH', where='/virtualmachines/',
                           after=1)
        self.assertRaises(errors.AccessDenied, machine.set_boot, HTTP,
                          boot.Enabled.ONCE, http_uri=self.url())
        self.assertEqual('', machine.boot().http_uri)
        self.assertEqual([1], self.fault_hits())
        self.assertEqual(before, self.sandbox.vm(machine.name)['spec'])
        self.wait_clean(machine)

    def test_deletes_image_without_override(self):
        # A BMC killed before it sets the override leaves this state.
        machine = self.uefi(**self.SOON)
        machine.insert_media('HttpBoot', self.source())
        self.until('no DataVolume', lambda: not self.data_volumes(machine))
        self.assertEqual((None, None), self.drive_of(machine, 'bmc-http'))
        self.wait_clean(machine)


class CertificateTestCase(media_case.UploadingTestCase):

    def certificate(self):
        return self.sandbox.ca.read_text()

    def test_certificate_is_stored_and_used_by_cdi(self):
        bmc = self.bmc()
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        self.assertEqual((), machine.media_certificates('Cd'))
        made = machine.add_media_certificate('Cd', self.certificate())
        self.assertEqual((made,), machine.media_certificates('Cd'))
        self.assertEqual(made, machine.add_media_certificate(
            'Cd', self.certificate()))
        self.assertEqual((), machine.media_certificates('USBStick'))
        self.assertEqual((made,), self.bmc().machine(
            machine.name).media_certificates('Cd'))
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        name = self.sandbox.get(
            'datavolumes', machine.medium('Cd').data_volume)['spec'][
                'source']['http']['certConfigMap']
        self.assertEqual([name], self.owned('configmaps', machine))
        machine.delete_media_certificate('Cd', made.id)
        self.assertEqual((), machine.media_certificates('Cd'))
        self.assertRaises(errors.InvalidValue,
                          machine.delete_media_certificate, 'Cd', made.id)
        self.assertEqual([], self.owned('configmaps', machine))
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def https(self):
        """Start an image server; return the URL of an image and its CA."""
        made = self.useFixture(certificates.Certificate())
        server = self.useFixture(image_server.ImageServer(
            tls=(made.certificate, made.key)))
        return server.url + '/a.iso', made.ca.read_text()

    def bundle(self, text, key='ca.pem'):
        """Put a text into the ConfigMap of certificates."""
        self.sandbox.delete('configmaps', 'trusted')
        self.sandbox.create('configmaps', {
            'metadata': {'name': 'trusted'}, 'data': {key: text}})

    def inserts(self, machine, url):
        machine.insert_media('Cd', self.source(url))
        self.wait_state(machine, S.READY)
        volume = self.sandbox.get(
            'datavolumes', machine.medium('Cd').data_volume)
        machine.eject_media('Cd')
        self.until('ejected', lambda: not self.data_volumes(machine))
        return volume

    def test_config_map_of_certificates(self):
        url, ca = self.https()
        machine = self.machine(
            'Halted', self.bmc({'ca_config_map': 'trusted'}),
            change=media_case.drop_medium)

        def refused(error, *texts):
            exc = self.assertRaises(error, machine.insert_media, 'Cd',
                                    self.source(url))
            for text in texts:
                self.assertIn(text, str(exc))

        refused(errors.WrongState, 'ConfigMap default/trusted does not exist',
                'under its key ca.pem, or change ca_config_map')
        self.addCleanup(self.sandbox.delete, 'configmaps', 'trusted')
        begin, end = (f'-----{word} CERTIFICATE-----\n'
                      for word in ('BEGIN', 'END'))
        for text, key, problem in (
                (ca, 'ca.crt', 'no PEM certificate under ca.pem'),
                ('x', 'ca.pem', 'no PEM certificate under ca.pem'),
                (f'{begin}AAAA\n{end}', 'ca.pem', 'is not usable')):
            self.bundle(text, key)
            refused(errors.WrongState, problem)
        # Nobody asked to verify by it.
        machine.set_media_verify('Cd', False)
        self.inserts(machine, url)
        machine.set_media_verify('Cd', True)
        self.bundle(self.https()[1])
        refused(errors.MediaUnreachable, 'cannot be verified')
        self.assertEqual([], self.data_volumes(machine))
        # It is read for each image.
        self.bundle('a secret\n' + ca)
        name = self.inserts(machine, url)['spec']['source']['http'][
            'certConfigMap']
        # CDI gets the certificates, and nothing else that was there.
        self.assertEqual({'operator.pem': ca}, self.sandbox.get(
            'configmaps', name)['data'])
        # The BMC itself verifies by it, too.
        uploading = self.uploading(ca_config_map='trusted').machine(
            machine.name)
        self.assertEqual({'upload': {}}, self.inserts(uploading, url)['spec'][
            'source'])

    def test_certificates_of_options_and_of_the_device(self):
        (first, first_ca), (second, second_ca) = self.https(), self.https()
        self.bundle(first_ca)
        self.addCleanup(self.sandbox.delete, 'configmaps', 'trusted')
        machine = self.machine(
            'Halted', self.bmc({'ca_config_map': 'trusted'}),
            change=media_case.drop_medium)
        added = machine.add_media_certificate('Cd', second_ca)
        for url in first, second:
            name = self.inserts(machine, url)['spec']['source']['http'][
                'certConfigMap']
        self.assertEqual(
            {'operator.pem': first_ca, '1.pem': second_ca},
            self.sandbox.get('configmaps', name)['data'])
        # CDI does not trust what the options no longer name.
        machine = self.bmc().machine(machine.name)
        self.inserts(machine, second)
        self.assertEqual({'1.pem': second_ca}, self.sandbox.get(
            'configmaps', name)['data'])
        self.assertRaises(errors.MediaUnreachable, machine.insert_media,
                          'Cd', self.source(first))
        machine.delete_media_certificate('Cd', added.id)

    def test_refuses_invalid_certificates(self):
        machine = self.machine('Halted')
        for text in ('', 'x', self.certificate() * 2,
                     '-----BEGIN CERTIFICATE-----\nAAAA\n'
                     '-----END CERTIFICATE-----\n'):
            self.assertRaises(errors.InvalidValue,
                              machine.add_media_certificate, 'Cd', text)

    def test_foreign_config_map_stays(self):
        machine = self.machine('Halted')
        self.sandbox.create('configmaps', {
            'metadata': {'name': machine.name + '-bmc-cd-ca'},
            'data': {'a': 'b'}})
        self.addCleanup(self.sandbox.delete, 'configmaps',
                        machine.name + '-bmc-cd-ca')
        self.assertRaises(errors.MachineError, machine.add_media_certificate,
                          'Cd', self.certificate())
        self.assertEqual({'a': 'b'}, self.sandbox.get(
            'configmaps', machine.name + '-bmc-cd-ca')['data'])
        self.assertIsNone(self.annotation(machine))

    def test_verification_of_servers(self):
        machine = self.machine('Halted')
        self.assertTrue(machine.media_verify('Cd'))
        machine.set_media_verify('Cd', False)
        self.assertFalse(machine.media_verify('Cd'))
        self.assertTrue(machine.media_verify('USBStick'))
        self.assertFalse(self.bmc().machine(
            machine.name).media_verify('Cd'))
        # Without an upload proxy, CDI imports without verification.
        machine.insert_media('Cd', self.source())
        self.assertIs(True, self.sandbox.get(
            'datavolumes', machine.medium('Cd').data_volume)['spec'][
                'source']['http']['insecureSkipVerify'])
        machine.eject_media('Cd')
