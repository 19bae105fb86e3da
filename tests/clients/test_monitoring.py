# SPDX-License-Identifier: Apache-2.0
"""Monitoring by IPMI: a healthy VM has no finding, a failed one has.

FreeIPMI rates each sensor and each entry of the log; check_ipmi_sensor, a
plugin of Nagios and Icinga, warns of each that is not "Nominal".
"""

import os
import re
import shutil
import signal
import unittest

from kubevirt_sandbox.testing import process
from tests.clients import case
from tests.clients import freeipmi
from tests.fixtures import processes

#: Where Debian has the plugins, besides PATH.
PLUGINS = '/usr/lib/nagios/plugins'
PLUGIN = shutil.which('check_ipmi_sensor', path=os.pathsep.join(
    (os.environ['PATH'], PLUGINS)))

ACTIONS = case.SYSTEM + '/Actions/ComputerSystem.Reset'

#: A node that no cluster has.
NOWHERE = {'kubernetes.io/hostname': 'nowhere'}


@unittest.skipUnless(PLUGIN, 'check_ipmi_sensor is not installed')
class CheckIpmiSensorTestCase(freeipmi.FreeipmiTestCase):

    CLIENT = 'check_ipmi_sensor'

    @classmethod
    def version(cls):
        with open(PLUGIN) as stream:
            return re.search(r'check_ipmi_sensor_version = "(.*)"',
                             stream.read())[1]

    def findings(self):
        """Return what the four programs find fault with, as lines."""
        rows = []
        for program, *words in (('ipmi-sensors', '--output-sensor-state'),
                                ('ipmimonitoring',),
                                ('ipmi-sel', '--output-event-state')):
            lines = self.freeipmi(
                program, '--comma-separated-output', '--no-header-output',
                *words).splitlines()
            rows += [f'{program}: {line}' for line in lines
                     if ',Nominal,' not in line]
        cache = f'--sdr-cache-directory={self.cache}'
        output = self.run_command(
            PLUGIN, '-H', self.address, '-f', self.config, '-O', cache,
            '--seloptions', cache, '--nosudo', '-v', code=None)
        if not output.startswith('IPMI Status: OK'):
            rows.append(output)
        return rows

    def healthy(self, *texts):
        """Check that nothing is found, once the log has entries with texts."""
        self.until(lambda: all(text in self.freeipmi('ipmi-sel')
                               for text in texts),
                   describe=lambda: self.freeipmi('ipmi-sel'))
        self.assertEqual([], self.findings())

    def patch(self, **values):
        self.request('PATCH', case.SYSTEM, values)

    def reset(self, reset_type, state='On'):
        self.request('POST', ACTIONS, {'ResetType': reset_type})
        self.wait_power(state)

    def boot(self, device, shown):
        """Boot from a device, and check the sensor that has it."""
        count = len(self.boots())
        self.patch(Boot={'BootSourceOverrideTarget': device,
                         'BootSourceOverrideEnabled': 'Once'})
        self.reset('On' if self.power_state() == 'Off' else 'ForceRestart')
        self.until(lambda: len(self.boots()) > count)
        self.until(lambda: shown in self.freeipmi('ipmi-sensors'),
                   describe=lambda: self.freeipmi('ipmi-sensors'))

    def test_healthy_vm(self):
        """A day of a VM, each of whose states and entries is nominal."""
        # A BMC that has just started, of a VM that is off
        self.power('Off')
        self.healthy()
        self.power('On')
        self.until(lambda: 'C: boot completed' in self.freeipmi(
            'ipmi-sensors'))
        self.healthy()
        for device, shown in (('Pxe', 'PXE boot completed'),
                              ('Cd', 'CD-ROM boot completed'),
                              ('Hdd', 'C: boot completed')):
            self.boot(device, shown)
            self.healthy('Next Boot Set', 'Boot')
        self.patch(Boot={'BootSourceOverrideTarget': 'Pxe',
                         'BootSourceOverrideEnabled': 'Continuous'})
        self.patch(Boot={'BootSourceOverrideEnabled': 'Disabled'})
        self.healthy('Next Boot Unset')
        self.reset('Pause', 'Paused')
        self.healthy()
        self.reset('Resume')
        self.reset('PowerCycle')
        self.reset('GracefulShutdown', 'Off')
        self.healthy('Power Change')
        self.freeipmi('ipmi-chassis', '--chassis-identify', 'FORCE')
        self.reset('On')
        if self.host:
            self.media()
        # A BMC that was restarted
        starts = self.freeipmi('ipmi-sel').count('BMC')
        [pod] = self.kubectl.get('pods')['items']
        for pid in processes.with_environment(pod['metadata']['uid']):
            if pid in process.running('sushy-kubevirt-bmc'):
                os.kill(pid, signal.SIGTERM)
        self.until(lambda: all(
            one['ready'] and one['restartCount'] == 1
            for one in self.kubectl.get('pods')['items'][0]['status'][
                'containerStatuses']))
        self.until(lambda: self.freeipmi('ipmi-sel').count('BMC') > starts)
        self.healthy('Power')
        self.record('check_ipmi_sensor')

    def media(self):
        """Insert and eject a medium, and change accounts."""
        cd = '/redfish/v1/Systems/1/VirtualMedia/Cd'
        self.request('POST', cd + '/Actions/VirtualMedia.InsertMedia',
                     {'Image': self.image()})
        self.healthy('Image Imported', 'CD')
        self.request('POST', cd + '/Actions/VirtualMedia.EjectMedia', {})
        accounts = '/redfish/v1/AccountService/Accounts'
        account = self.request('POST', accounts, {
            'UserName': 'guest', 'Password': 'first-password',
            'RoleId': 'ReadOnly'}).json()['@odata.id']
        self.request('DELETE', account)
        self.healthy('Event')

    def test_failed_start(self):
        """A VM that cannot start is a finding until it does."""
        self.power('Off')
        self.select_node(NOWHERE)
        self.addCleanup(self.freeipmi, 'ipmi-sel', '--clear')
        self.addCleanup(self.select_node, None)
        self.freeipmi('ipmipower', '--on')
        # A warning of the scheduler comes before.
        patterns = (r'ipmi-sensors: .*,Power,.*,Critical,',
                    r'ipmimonitoring: .*,Power,.*,Critical,',
                    r'ipmi-sel: .*,Power,.*,Critical,',
                    r'ipmi-sel: .*,FailedScheduling,.*,Warning,',
                    r'IPMI Status: Critical')
        self.until(lambda: all(
            re.search(pattern, '\n'.join(self.findings()))
            for pattern in patterns), describe=self.findings)
        self.select_node(None)
        self.freeipmi('ipmipower', '--off')
        self.wait_power('Off')
        self.freeipmi('ipmi-sel', '--clear')
        self.power('On')
        self.healthy('Power')

    def select_node(self, labels):
        self.kubectl('patch', 'vm', case.NAME, '--type', 'merge', '--patch',
                     '{"spec": {"template": {"spec": {"nodeSelector": %s}}}}'
                     % ('null' if labels is None else str(labels).replace(
                         "'", '"')))
