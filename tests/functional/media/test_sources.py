# SPDX-License-Identifier: Apache-2.0
"""Sources of virtual media: uploads, HTTPS certificates and HTTP boot."""

import signal
import subprocess
import sys

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine.media import reconciler
from sushy_kubevirt.machine import power_state
from tests.fixtures import checkout
from tests.fixtures import machine_case
from tests.fixtures import media_case

R = power_state.ResetType
S = media_case.S
HTTP = boot.Target.UEFI_HTTP

_UPLOADER = '''
import sys, time
from sushy_kubevirt.kube import connection
from sushy_kubevirt.machine import cluster, media, options
kubeconfig, name, url, proxy, ca = sys.argv[1:]
made = cluster.Cluster(
    connection.Connection.from_options(kubeconfig), ('default',),
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

    def test_storage_that_cdi_does_not_know(self):
        # CDI's StorageProfile of such a class recommends nothing.
        self.sandbox.request(
            'POST', '/apis/storage.k8s.io/v1/storageclasses', {
                'metadata': {'name': 'of-a-kind'},
                'provisioner': 'example.test/of-a-kind'}, expect=201)
        self.addCleanup(
            self.sandbox.request, 'DELETE',
            '/apis/storage.k8s.io/v1/storageclasses/of-a-kind')
        for mode, state in ((None, S.READY), ('auto', S.FAILED)):
            chosen = {'access_mode': mode} if mode else {}
            machine = self.machine(
                'Halted', self.bmc({'storage_class': 'of-a-kind', **chosen}),
                change=media_case.drop_medium)
            machine.insert_media('Cd', self.source())
            medium = self.comes(machine, state)
            if mode:
                self.assertEqual('ErrClaimNotValid', medium.reason)
                self.assertIn('no accessMode', medium.message)
            machine.eject_media('Cd')
            self.nothing_left(machine)


class UploadTestCase(media_case.UploadingTestCase):

    def test_upload(self):
        machine = self.machine('Halted', self.uploading(),
                               change=media_case.drop_medium)
        source = self.source(
            self.url('private/size-3000000.iso'),
            username=self.images.USER, password=self.images.PASSWORD)
        machine.insert_media('Cd', source)
        medium = self.comes(machine, S.READY)
        self.assertEqual(source.url, medium.url)
        [volume] = self.sandbox.list('datavolumes')
        self.assertEqual({'upload': {}}, volume['spec']['source'])
        self.assertEqual([], self.owned('secrets', machine))
        machine.eject_media('Cd')
        self.nothing_left(machine)

    def test_auto_uploads_what_cdi_cannot_import(self):
        bmc = self.bmc(self.proxy)
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        for fields, kind in (({}, 'http'), ({'verify': False}, 'upload'),
                             ({'method': 'Upload'}, 'upload')):
            machine.insert_media('Cd', self.source(**fields))
            self.comes(machine, S.READY)
            self.until('the other is gone',
                       lambda: len(self.data_volumes(machine)) == 1)
            self.assertIn(kind, self.sandbox.get(
                'datavolumes', machine.medium('Cd').data_volume)[
                    'spec']['source'])
        machine.eject_media('Cd')
        self.nothing_left(machine)

    def test_without_a_proxy(self):
        machine = self.machine('Halted', self.bmc({'mode': 'upload'}),
                               change=media_case.drop_medium)
        self.assertRaises(errors.Unsupported, machine.insert_media, 'Cd',
                          self.source())
        self.assertIsNone(self.remembered(machine))

    def test_proxy_that_cannot_be_reached(self):
        machine = self.machine(
            'Halted', self.bmc({
                'mode': 'upload', 'upload_proxy_url': 'http://127.0.0.1:9'}),
            change=media_case.drop_medium)
        machine.insert_media('Cd', self.source())
        medium = self.comes(machine, S.FAILED)
        self.assertEqual('UploadFailed', medium.reason)
        self.assertIn('127.0.0.1:9', medium.message)
        machine.eject_media('Cd')
        self.nothing_left(machine)

    def test_ejected_half_way(self):
        bmc = self.uploading()
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        machine.insert_media('Cd', self.source(
            self.url('size-50000000000.iso')))
        self.assertTrue(bmc.media.wait(
            lambda: machine.medium('Cd').progress, 15))
        machine.eject_media('Cd')
        self.nothing_left(machine)
        self.until('its end', lambda: not bmc.media.uploads)

    def test_process_that_dies_half_way(self):
        self.addCleanup(setattr, reconciler, 'UPLOAD_SECONDS',
                        reconciler.UPLOAD_SECONDS)
        reconciler.UPLOAD_SECONDS = 4
        machine = self.machine('Halted', change=media_case.drop_medium)
        with subprocess.Popen(
                [sys.executable, '-c', _UPLOADER,
                 str(self.account), machine.name,
                 self.url('size-50000000000.iso'), *self.proxy.values()],
                cwd=checkout.ROOT, stdout=subprocess.PIPE, text=True) as other:
            self.assertEqual('begun\n', other.stdout.readline())
            self.comes(machine, S.IMPORTING)
            other.send_signal(signal.SIGKILL)
        medium = self.comes(machine, S.FAILED, seconds=20)
        self.assertEqual('UploadInterrupted', medium.reason)
        machine.insert_media('Cd', self.source())
        self.comes(machine, S.READY)
        machine.eject_media('Cd')
        self.nothing_left(machine)


class HttpBootTestCase(media_case.MediaTestCase):

    def uefi(self, **kwargs):
        machine = self.machine('Manual', change=lambda spec: (
            media_case.drop_drive(spec), spec['domain']['firmware'].update(
                bootloader={'efi': {'secureBoot': False}})), **kwargs)
        self.until('CDI', lambda: machine.cluster.media.cdi_available)
        return machine

    def test_once(self):
        machine = self.uefi()
        spec = self.sandbox.vm(machine.name)['spec']
        url = self.url()
        machine.set_boot(HTTP, boot.Enabled.ONCE, http_uri=url)
        self.assertEqual(
            (HTTP, boot.Enabled.ONCE, url),
            (machine.boot().target, machine.boot().enabled,
             machine.boot().http_uri))
        self.assertIsNone(machine.medium('Cd'))
        self.comes(machine, S.READY, 'HttpBoot')
        self.assertTrue(machine.medium('HttpBoot').http_boot)
        machine.reset(R.ON)
        self.assertEqual('cdrom:bmc-http', self.sandbox.wait_boot(
            machine.name, 1)['device'])
        self.becomes(machine, machine_case.ON)
        self.until('over', lambda: machine.boot().enabled
                   is boot.Enabled.DISABLED)
        # It reads as over a moment before the drive is taken out. The guest
        # goes on reading what it has booted.
        self.until('no drive', lambda: self.drive_of(machine, 'bmc-http')
                   == (None, None))
        self.stays(lambda: self.data_volumes(machine), 1.5)
        self.wait_override_removed(machine.name)
        self.sandbox.guest_does(machine.name, 'reboot')
        self.assertEqual('Hdd', self.sandbox.wait_boot(machine.name, 2)[
            'class'])
        self.until('gone', lambda: not self.data_volumes(machine))
        self.until('as before', lambda: self.sandbox.vm(machine.name)[
            'spec'] == spec)

    def test_target_that_changes(self):
        machine = self.uefi()
        for settings in ((boot.Target.PXE, boot.Enabled.ONCE),
                         (None, boot.Enabled.DISABLED)):
            machine.set_boot(HTTP, boot.Enabled.ONCE, http_uri=self.url())
            self.comes(machine, S.READY, 'HttpBoot')
            machine.set_boot(*settings)
            self.assertEqual((None, None),
                             self.drive_of(machine, 'bmc-http'))
            self.until('gone', lambda: not self.data_volumes(machine))
        machine.set_boot(HTTP, boot.Enabled.CONTINUOUS, http_uri=self.url())
        other = self.url()
        machine.set_boot(http_uri=other)
        self.assertEqual(other, machine.medium('HttpBoot').url)
        machine.set_boot(boot.Target.NONE, http_uri='')
        self.nothing_left(machine)

    def test_beside_a_virtual_medium(self):
        machine = self.uefi()
        machine.insert_media('Cd', self.source())
        machine.set_boot(HTTP, boot.Enabled.ONCE, http_uri=self.url())
        self.comes(machine, S.READY, 'HttpBoot')
        machine.reset(R.ON)
        self.assertEqual('cdrom:bmc-http', self.sandbox.wait_boot(
            machine.name, 1)['device'])
        machine.reset(R.FORCE_OFF)
        self.assertEqual(S.READY, self.comes(machine, S.READY).state)
        self.until('one left', lambda: self.data_volumes(machine) == [
            machine.medium('Cd').data_volume])

    def test_what_is_refused(self):
        machine = self.uefi()
        self.assertRaises(errors.InvalidValue, machine.set_boot, HTTP,
                          boot.Enabled.ONCE)
        self.assertRaises(errors.MediaUnreachable, machine.set_boot, HTTP,
                          boot.Enabled.ONCE,
                          http_uri=self.images.url + '/missing')
        self.assertRaises(errors.InvalidValue, machine.set_boot, HTTP,
                          http_uri='tftp://x/y')
        legacy = self.machine('Manual')
        self.until('CDI', lambda: legacy.cluster.media.cdi_available)
        self.assertRaises(errors.WrongState, legacy.set_boot, HTTP,
                          boot.Enabled.ONCE, http_uri=self.url())
        self.assertEqual([], self.data_volumes())

    def test_medium_without_its_override(self):
        # As if its BMC had died before it set the override.
        machine = self.uefi()
        machine.insert_media('HttpBoot', self.source())
        self.until('gone', lambda: not self.data_volumes(machine))
        self.assertEqual((None, None), self.drive_of(machine, 'bmc-http'))
        self.nothing_left(machine)


class CertificateTestCase(media_case.MediaTestCase):

    def certificate(self):
        return self.sandbox.ca.read_text()

    def test_kept_and_given_to_cdi(self):
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
        self.comes(machine, S.READY)
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
        self.nothing_left(machine)

    def test_what_is_none(self):
        machine = self.machine('Halted')
        for text in ('', 'x', self.certificate() * 2,
                     '-----BEGIN CERTIFICATE-----\nAAAA\n'
                     '-----END CERTIFICATE-----\n'):
            self.assertRaises(errors.InvalidValue,
                              machine.add_media_certificate, 'Cd', text)

    def test_somebody_elses_config_map(self):
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

    def test_whether_servers_are_verified(self):
        machine = self.machine('Halted')
        self.assertTrue(machine.media_verify('Cd'))
        machine.set_media_verify('Cd', False)
        self.assertFalse(machine.media_verify('Cd'))
        self.assertTrue(machine.media_verify('USBStick'))
        self.assertFalse(self.bmc().machine(
            machine.name).media_verify('Cd'))
        # Without a proxy, CDI is told so.
        machine.insert_media('Cd', self.source())
        self.assertIs(True, self.sandbox.get(
            'datavolumes', machine.medium('Cd').data_volume)['spec'][
                'source']['http']['insecureSkipVerify'])
        machine.eject_media('Cd')
