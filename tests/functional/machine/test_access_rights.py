# SPDX-License-Identifier: Apache-2.0
"""The project's manifests request exactly the permissions that are used.

``etc/kubernetes/bmc.yaml`` is compared with the API calls that emulator and
BMC make while the tests use every function of a BMC.
"""

import time

import yaml

from tests.fixtures import base
from tests.fixtures import checkout
from tests.fixtures import media_case
from tests.fixtures import vbmcd

MANIFEST = checkout.ROOT / 'etc' / 'kubernetes' / 'bmc.yaml'

#: Used only by other tests: cancelling a start that has not begun, starting a
#: VM with run strategy Once again, the sizes of a VM with an instance type
#: that is off, and the consoles. Nothing opens the display yet.
RARE = {
    ('patch', 'virtualmachines.kubevirt.io/status'),
    ('delete', 'virtualmachineinstances.kubevirt.io'),
    ('get', 'virtualmachines.subresources.kubevirt.io/expand-spec'),
    *(('get', 'virtualmachineinstances.subresources.kubevirt.io/' + console)
      for console in ('console', 'vnc')),
}

#: Allowed for every account by ClusterRole ``system:discovery``.
OPEN = {('get', 'discovery')}

#: For virtual media; `MediaAccessTestCase` uses all of them.
MEDIA = {
    *((verb, 'datavolumes.cdi.kubevirt.io') for verb in (
        'create', 'get', 'list', 'watch', 'patch', 'delete')),
    ('get', 'persistentvolumeclaims'),
    ('create', 'secrets'),
    *((verb, 'configmaps') for verb in ('create', 'get', 'patch', 'delete')),
    ('create', 'uploadtokenrequests.upload.cdi.kubevirt.io'),
}

#: For the state and the Events of the emulator's services; their own tests
#: use these.
SERVICES = {
    *((verb, 'secrets') for verb in (
        'get', 'list', 'watch', 'patch', 'create')),
    ('create', 'events'), ('list', 'events'),
}


def granted():
    """Read the permissions of the manifest.

    :returns: set of (verb, resource), resources as the sandbox's counts
        name them.
    """
    found = set()
    for obj in yaml.safe_load_all(MANIFEST.read_text()):
        for rule in obj.get('rules', ()):
            for resource in rule['resources']:
                plural, slash, subresource = resource.partition('/')
                name = '.'.join(filter(None, (plural, rule['apiGroups'][0])))
                name += slash + subresource
                found |= {(verb, name) for verb in rule['verbs']}
    return found


class AccessTestCase(base.EmulatorTestCase):

    VMS = 1

    def setUp(self):
        super().setUp()
        self.vbmcd = self.useFixture(vbmcd.Vbmcd(
            self.sandbox.bmc_account()))

    def wait_power(self, state):
        # Poll the emulator: its reads make no API call, unlike a watch.
        deadline = time.monotonic() + 30
        while self.emulator.system(self.uuid)['PowerState'] != state:
            self.assertLess(time.monotonic(), deadline,
                            f'no power state {state}')
            time.sleep(0.05)

    def reset(self, reset_type, state):
        self.emulator.reset(self.uuid, reset_type)
        self.wait_power(state)

    def boot(self, **values):
        self.emulator.patch_system(self.uuid, {
            'Boot': {'BootSourceOverride' + name: value
                     for name, value in values.items()}})

    def test_bmc_uses_exactly_the_granted_permissions(self):
        self.uuid = self.emulator.systems()[0].rpartition('/')[2]
        self.sandbox.reset_stats()
        self.vbmcd.add('vm-0')
        self.reset('On', 'On')
        self.reset('Pause', 'Paused')
        self.reset('Resume', 'On')
        self.boot(Target='Pxe', Enabled='Once')
        self.vbmcd.ipmi('vm-0', 'chassis', 'power', 'cycle')
        self.wait_power('On')
        self.boot(Target='Pxe', Enabled='Continuous', Mode='UEFI')
        self.reset('GracefulRestart', 'On')
        self.boot(Target='None', Enabled='Disabled', Mode='Legacy')
        self.reset('ForceOff', 'Off')
        self.vbmcd.ipmi('vm-0', 'chassis', 'bootdev', 'cdrom')
        self.vbmcd.ipmi('vm-0', 'chassis', 'power', 'on')
        self.wait_power('On')
        self.reset('GracefulShutdown', 'Off')
        self.reset('On', 'On')
        self.emulator.request('PATCH', f'/redfish/v1/Systems/{self.uuid}',
                              {'IndicatorLED': 'Lit'},
                              expect=(200, 202, 204))
        self.emulator.request('GET', '/redfish/v1/Managers', expect=200)
        used = {(verb, resource)
                for verb, counts in self.sandbox.stats()['calls'].items()
                for resource in counts}
        self.assertEqual(set(), used - granted() - OPEN)
        self.assertEqual(
            set(), granted() - used - RARE - MEDIA - SERVICES)


class MediaAccessTestCase(media_case.UploadingTestCase):

    def test_media_use_exactly_the_granted_permissions(self):
        bmc = self.uploading()
        machine = self.machine('Halted', bmc, change=media_case.drop_medium)
        self.sandbox.reset_stats()
        certificate = machine.add_media_certificate(
            'Cd', self.sandbox.ca.read_text())
        for mode in ('import', 'upload'):
            one = self.uploading(mode=mode).machine(machine.name)
            one.insert_media('Cd', self.source(
                self.url(f'private/{mode}.iso'),
                username=self.images.USER, password=self.images.PASSWORD))
            self.wait_state(one, media_case.S.READY)
        # The killed insert leaves objects that the next BMC removes.
        self.uploading(**self.SOON)
        self.run_bmc(machine.name, 'insert', 'USBStick', self.url(), writes=2)
        self.until('unfinished insert removed', lambda: '"gone"' not in (
            self.annotation(machine)) and '"next"' not in (
            self.annotation(machine)))
        machine.eject_media('Cd')
        machine.delete_media_certificate('Cd', certificate.id)
        used = {(verb, resource)
                for verb, counts in self.sandbox.stats()['calls'].items()
                for resource in counts}
        # This call is the test's own.
        used -= {('list', 'persistentvolumeclaims')}
        self.assertEqual(set(), used - granted() - OPEN)
        self.assertEqual(set(), MEDIA - used)
