# SPDX-License-Identifier: Apache-2.0
"""BMCs beside Harvester's webhooks, controllers and user interface.

The sandbox has Harvester's webhooks and controllers (``--harvester``). What
its user interface does is sent from here, as read in harvester/harvester,
commit 3d63c2af, and harvester/harvester-ui-extension, commit 8fba4e70 (both
1.9). Nothing of this has run on Harvester itself.
"""

import base64
import copy
import gzip
import os

from kubevirt_sandbox.testing import sandbox
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy
from tests.fixtures import file_servers
from tests.fixtures import media_case
from tests.fixtures import operator

R = power_state.ResetType
S = media_case.S
ON, OFF = power_state.PowerState.ON, power_state.PowerState.OFF
Policy = power_restore_policy.Policy


class HarvesterTestCase(media_case.MediaTestCase):

    SANDBOX_ARGUMENTS = ('--harvester',)

    def note(self, name):
        """Return Harvester's record of a VM's run strategy."""
        return self.sandbox.vm(name)['metadata'].get('annotations', {}).get(
            run_strategy.HARVESTER)

    def user_changes(self, name, change, expect=200):
        """Replace a VM, as the API of the user interface does.

        :param change: function that edits the VM
        :param expect: HTTP status code; 409 is retried
        :returns: text of the response
        """
        answers = []

        def send():
            vm = copy.deepcopy(self.sandbox.vm(name))
            change(vm)
            answers[:] = [self.sandbox.request(
                'PUT', sandbox.path('virtualmachines', name), vm)]
            return answers[0].status_code != 409

        self.until('an update without conflict', send)
        self.assertEqual(expect, answers[0].status_code, answers[0].text)
        return answers[0].text

    def user_stops(self, name):
        """Stop a VM: stopVM in pkg/api/vm/handler.go."""
        self.user_changes(
            name, lambda vm: vm['spec'].update(runStrategy='Halted'))
        self.sandbox.wait_stopped(name)

    def becomes_strategy(self, name, strategy):
        self.until(f'{strategy} in the VM and in its annotation', lambda: (
            self.strategy(name), self.note(name)) == (strategy, strategy))


class PowerTestCase(HarvesterTestCase):

    def test_on_and_off_under_every_strategy(self):
        bmc = self.bmc()
        for strategy in 'Always', 'RerunOnFailure', 'Manual', 'Once':
            machine = self.machine(strategy, bmc, off=False)
            for off in R.GRACEFUL_SHUTDOWN, R.FORCE_OFF:
                machine.reset(off)
                self.becomes(machine, OFF)
                machine.reset(R.ON)
                self.becomes(machine, ON)
                self.becomes_strategy(machine.name, strategy)

    def test_stop_by_user_is_followed_by_on(self):
        machine = self.machine('Always', off=False)
        self.becomes_strategy(machine.name, 'Always')
        self.user_stops(machine.name)
        self.becomes(machine, OFF)
        self.assertIs(Policy.ALWAYS_ON, machine.power_restore_policy())
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.assertEqual('Always', self.strategy(machine.name))

    def in_one_time_boot(self, strategy):
        """Make a machine that runs under Always for its one-time boot."""
        machine = self.machine(strategy)
        self.becomes_strategy(machine.name, strategy)
        machine.set_boot(boot.Target.PXE, boot.Enabled.ONCE)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.wait_override_removed(machine.name)
        self.becomes_strategy(machine.name, 'Always')
        return machine

    def test_machine_stopped_by_user_stays_off(self):
        machine = self.in_one_time_boot('Manual')
        count = len(self.sandbox.boots(machine.name))
        self.user_stops(machine.name)
        self.becomes_strategy(machine.name, 'Manual')
        self.stays(lambda: machine.power_state() is OFF)
        self.assertEqual(count, len(self.sandbox.boots(machine.name)))

    def test_start_by_user_restores_strategy(self):
        machine = self.in_one_time_boot('RerunOnFailure')
        self.user_stops(machine.name)
        self.until('the strategy to restore',
                   lambda: self.note(machine.name) == 'RerunOnFailure')
        # KubeVirt sets Always, which the webhook replaces.
        self.sandbox.do(machine.name, 'start')
        self.becomes(machine, ON)
        self.becomes_strategy(machine.name, 'RerunOnFailure')

    def test_policy_does_not_start_machine(self):
        machine = self.machine('RerunOnFailure', off=False)
        self.becomes_strategy(machine.name, 'RerunOnFailure')
        count = len(self.sandbox.boots(machine.name))
        self.user_stops(machine.name)
        for policy in Policy.ALWAYS_OFF, Policy.ALWAYS_ON, Policy.LAST_STATE:
            machine.set_power_restore_policy(policy)
            self.stays(lambda: machine.power_state() is OFF, 0.3)
            self.assertIs(policy, machine.power_restore_policy())
        self.assertEqual(count, len(self.sandbox.boots(machine.name)))

    def test_one_time_boot_of_halted_machine_survives_reboot(self):
        machine = self.machine('RerunOnFailure', off=False)
        self.user_stops(machine.name)
        count = len(self.sandbox.boots(machine.name))
        machine.set_boot(boot.Target.PXE, boot.Enabled.ONCE)
        machine.reset(R.ON)
        self.becomes(machine, ON)
        self.wait_override_removed(machine.name)
        self.assertEqual('Always', self.strategy(machine.name))
        self.sandbox.guest_does(machine.name, 'reboot')
        self.sandbox.wait_boot(machine.name, count + 2)
        self.assertEqual(['Pxe', 'Hdd'], [
            one['class'] for one in self.sandbox.boots(machine.name)[count:]])
        self.becomes_strategy(machine.name, 'RerunOnFailure')

    def test_stop_is_refused_during_backup(self):
        for strategy in 'Always', 'RerunOnFailure':
            machine = self.machine(strategy, off=False)
            hasty = self.handle(self.bmc(write_deadline=4), machine.name)
            path = ('/apis/harvesterhci.io/v1beta1/namespaces/'
                    f'{sandbox.NAMESPACE}/virtualmachinebackups')
            self.sandbox.request('POST', path, {
                'metadata': {'name': machine.name},
                'status': {'sourceUID': machine.uid}}, expect=201)
            error = self.assertRaises(errors.Unavailable, hasty.reset,
                                      R.FORCE_OFF)
            self.assertIn('has a backup in progress', str(error))
            self.assertIs(ON, machine.power_state())
            self.sandbox.request('DELETE', f'{path}/{machine.name}',
                                 expect=200)
            machine.reset(R.FORCE_OFF)
            self.becomes(machine, OFF)


def form(vm):
    """Edit a VM as saving the unchanged form of the user interface does.

    It numbers all disks from 1, and makes volumes only of claims and container
    disks: getDiskRows, parseDiskRows and parseVolume in
    pkg/harvester/mixins/harvester-vm/index.js.
    """
    spec = vm['spec']['template']['spec']
    disks = spec['domain']['devices']['disks']
    order = {disk['name']: disk.get('bootOrder') or index
             for index, disk in enumerate(disks)}
    disks.sort(key=lambda disk: order[disk['name']])
    for number, disk in enumerate(disks, 1):
        disk['bootOrder'] = number
    for volume in spec['volumes']:
        volume.pop('dataVolume', None)


def add_interface(vm):
    spec = vm['spec']['template']['spec']
    spec['networks'].append({
        'name': 'vlan', 'multus': {'networkName': 'default/vlan2017'}})
    spec['domain']['devices']['interfaces'].append(
        {'name': 'vlan', 'bridge': {}})


class MediaTestCase(HarvesterTestCase):

    def test_empty_drive_allows_other_interfaces(self):
        machine = self.machine('Halted', change=media_case.drop_drive)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.wait_clean(machine)
        disk, volume = self.drive_of(machine, 'bmc-cd')
        self.assertEqual(('sata', None), (disk['cdrom']['bus'], volume))
        self.user_changes(machine.name, add_interface)

    def test_form_is_refused_while_medium_is_inserted(self):
        machine = self.machine('Halted', change=media_case.drop_drive)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        before = self.drive_of(machine, 'bmc-cd')
        self.assertIn('exactly one source type', self.user_changes(
            machine.name, form, 422))
        self.assertEqual(before, self.drive_of(machine, 'bmc-cd'))
        machine.eject_media('Cd')
        self.wait_clean(machine)
        self.user_changes(machine.name, form)
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_form_is_refused_while_network_is_first(self):
        machine = self.machine('Halted')
        machine.set_boot(boot.Target.PXE, boot.Enabled.CONTINUOUS)
        self.assertIn('oot order', self.user_changes(machine.name, form, 422))
        machine.set_boot(enabled=boot.Enabled.DISABLED)
        self.user_changes(machine.name, form)

    def test_medium_of_user_is_kept(self):
        # Inserted in the user interface: insertCdRomVolume in
        # pkg/api/vm/handler.go.
        machine = self.machine('Halted', change=media_case.drop_medium)
        theirs = {'name': 'cd', 'persistentVolumeClaim': {
            'claimName': 'box-cd-abcde', 'hotpluggable': True}}
        self.user_changes(machine.name, lambda vm: vm['spec']['template'][
            'spec']['volumes'].append(theirs))
        self.until('the medium in the cache', lambda: theirs in (
            machine.state().vm['spec']['template']['spec']['volumes']))
        machine.insert_media('Cd', self.source())
        self.wait_state(machine, S.READY)
        self.assertEqual(theirs, self.drive_of(machine)[1])
        self.assertIsNotNone(self.drive_of(machine, 'bmc-cd')[1])
        machine.eject_media('Cd')
        self.wait_clean(machine)
        self.assertEqual(theirs, self.drive_of(machine)[1])


class ImageTestCase(HarvesterTestCase):
    """Images of Harvester, by the link for their download.

    The link serves GET only, without a length or ranges: a compressed stream
    of Longhorn's (DoDownload in pkg/image/backingimage/download.go). Rancher's
    server authenticates by Basic authentication with an API key
    (GetTokenAuthFromRequest in pkg/auth/tokens/token_util.go) and responds
    404 to other methods (handleOp in pkg/server/server.go of
    rancher/apiserver).
    """

    LINK = ('/v1/harvester/harvesterhci.io.virtualmachineimages/default/'
            'image-x7bq2/download')
    KEY = 'token-x7bq2', 'vd8lmq4r'

    def answer(self, handler):
        expected = base64.urlsafe_b64encode(':'.join(self.KEY).encode())
        given = handler.headers.get('Authorization', '')
        if given != 'Basic ' + expected.decode():
            file_servers.send(handler, 401)
        elif handler.path != self.LINK or handler.command != 'GET':
            file_servers.send(handler, 404)
        else:
            handler.send_response(200)
            handler.send_header('Content-Disposition',
                                'attachment; filename=installer.iso.gz')
            handler.send_header('Connection', 'close')
            handler.end_headers()
            handler.wfile.write(gzip.compress(os.urandom(200000)))

    def test_inserts_image(self):
        server = self.useFixture(file_servers.Server(self.answer))
        machine = self.machine(
            'Halted', self.bmc({'default_size': 1 << 20}),
            change=media_case.drop_medium)
        user, password = self.KEY
        source = self.source(server.url + self.LINK, username=user,
                             password='wrong')
        error = self.assertRaises(errors.MediaUnreachable,
                                  machine.insert_media, 'Cd', source)
        self.assertEqual('unauthorized', error.kind)
        machine.insert_media('Cd', self.source(
            server.url + self.LINK, username=user, password=password))
        self.wait_state(machine, S.READY)
        machine.eject_media('Cd')
        self.wait_clean(machine)

    def test_size_has_to_be_configured(self):
        server = self.useFixture(file_servers.Server(self.answer))
        machine = self.machine('Halted', change=media_case.drop_medium)
        user, password = self.KEY
        error = self.assertRaises(
            errors.MediaUnreachable, machine.insert_media, 'Cd', self.source(
                server.url + self.LINK, username=user, password=password))
        self.assertIn('compressed (gz)', str(error))


class OperatorTestCase(operator.OperatorTestCase):
    """A BMC with the rights and policies that the operator gives it."""

    SANDBOX = ('--harvester',)

    def test_power_and_boot(self):
        bmc = self.bmc()
        bmc.ready()
        self.until('power', bmc.works, 'Off')
        bmc.ipmi('chassis', 'bootdev', 'pxe')
        bmc.ipmi('power', 'on')
        self.sandbox.wait_running('box', self.namespace)
        [booted] = self.sandbox.boots('box', self.namespace)
        self.assertEqual('Pxe', booted['class'])
        bmc.ipmi('power', 'off')
        self.until('power', bmc.works, 'Off')
