# SPDX-License-Identifier: Apache-2.0
"""Go libraries: gofish, and bmclib, which Tinkerbell's Rufio uses.

Without Go the tests are skipped.
"""

import json
import re
import secrets
import unittest

from kubevirt_sandbox.testing import machines
from tests.clients import case
from tests.clients import environment
from tests.fixtures import operator

_WITHOUT_GO = environment.without_go()


@unittest.skipIf(_WITHOUT_GO, _WITHOUT_GO)
class GoTestCase(case.ClientTestCase):
    """A client that is a Go program, built from ``tests/clients/go``."""

    MODULE = None

    @classmethod
    def version(cls):
        return re.search(rf'{cls.MODULE} v(\S+)', (
            environment.GO_SOURCES / 'go.mod').read_text())[1]

    @classmethod
    def environment(cls):
        return super().environment() | {
            'SSL_CERT_FILE': str(cls.ca), 'BMC_URL': cls.url,
            'BMC_HOST': cls.address, 'BMC_USER': cls.bmc.username,
            'BMC_PASSWORD': cls.bmc.password}

    def run_program(self, *words, **options):
        return self.run_command(environment.GO_BIN / self.CLIENT, *words,
                                **options)


class GofishTestCase(GoTestCase):

    CLIENT = 'gofish'
    MODULE = 'github.com/stmcginnis/gofish'

    def test_resets_with_etags(self):
        self.power('Off')
        self.run_program('reset', 'On', 'ForceOff')
        self.wait_power('Off')
        self.run_program('reset', 'On')
        self.wait_power('On')
        self.run_program('reset', 'ForceRestart', 'GracefulShutdown')
        self.wait_power('Off')
        self.record('Reset')

    def test_boots_once(self):
        self.power('Off')
        count = len(self.boots())
        self.run_program('boot', 'Pxe')
        self.power('On')
        self.until(lambda: len(self.boots()) > count)
        self.assertEqual('Pxe', self.boots()[count])
        self.record('SetBoot')

    def test_media_with_etags(self):
        self.power('Off')
        self.run_program('media', self.image())
        self.record('InsertMedia', 'EjectMedia')

    def test_inventory(self):
        found = json.loads(self.run_program('inventory'))
        self.assertEqual(self.uuid, found['uuid'])
        self.assertEqual('/redfish/v1/Managers/1', found['manager'])
        for name, value in found.items():
            self.assertTrue(value, name)
        self.record('Inventory', 'logs', 'accounts')


class BmclibTestCase(GoTestCase):

    CLIENT = 'bmclib'
    MODULE = 'github.com/bmc-toolbox/bmclib/v2'

    def both(self):
        """Yield each driver that this BMC serves, with the VM off."""
        for driver in 'gofish', 'ipmitool':
            self.power('Off')
            yield driver

    def test_power(self):
        for driver in self.both():
            for state, reached in (('on', 'On'), ('cycle', 'On'),
                                   ('reset', 'On'), ('soft', 'Off'),
                                   ('on', 'On'), ('off', 'Off')):
                # Of the Redfish driver, "soft" always reports a failure.
                fails = (driver, state) == ('gofish', 'soft')
                self.run_program(driver, 'power', state, code=int(fails))
                self.wait_power(reached)
                self.assertIn(reached.lower(), self.run_program(
                    driver, 'power', 'status').lower())
            self.record(f'SetPowerState ({driver})')

    def test_machine_of_kubevirtbmc(self):
        """Machines of Rufio name the Service and the HTTP port."""
        self.sandbox.create('virtualmachines', machines.vm(
            'rack', 'Halted', case.NAMESPACE))
        bmc = operator.bmc_manifest('rack-bmc')
        bmc['spec'] = {'virtualMachineRef': {'name': 'rack'},
                       'authSecretRef': {'name': f'{case.NAME}-bmc'}}
        self.kubectl.apply(bmc)
        self.kubectl.wait('vmbmc/rack-bmc', 'condition=Ready')
        address = self.kubectl.get('service', 'rack-virtbmc')['spec'][
            'clusterIP']
        for count, (driver, host) in enumerate((
                ('gofish', f'http://{address}'), ('ipmitool', address)), 1):
            program = ('env', f'BMC_HOST={host}', 'BMC_REDFISH_PORT=80',
                       environment.GO_BIN / self.CLIENT, driver)
            self.run_command(*program, 'boot', 'pxe')
            self.run_command(*program, 'power', 'on')
            self.assertEqual('Pxe', self.sandbox.wait_boot(
                'rack', count)['class'])
            self.run_command(*program, 'power', 'off')
            self.sandbox.wait_stopped('rack')

    def test_boot_device(self):
        for driver in self.both():
            count = len(self.boots())
            self.run_program(driver, 'boot', 'pxe')
            self.power('On')
            self.until(lambda: len(self.boots()) > count)
            self.assertEqual('Pxe', self.boots()[count])
            self.record(f'SetBootDevice ({driver})')

    def test_media(self):
        self.power('Off')
        drive = case.SYSTEM + '/VirtualMedia/Cd'
        self.run_program('gofish', 'media', self.image())
        self.until(lambda: self.get(drive)['Inserted'])
        self.run_program('gofish', 'media', '')
        self.until(lambda: not self.get(drive)['Inserted'])
        self.record('SetVirtualMedia')

    def test_event_log(self):
        self.power('On')
        self.power('Off')
        entries = json.loads(self.run_program('ipmitool', 'log'))
        self.assertGreater(len(entries), 1, entries)
        self.record('GetSystemEventLog')

    def test_inventory(self):
        found = json.loads(self.run_program('gofish', 'inventory'))
        self.assertEqual(self.get(case.SYSTEM)['Manufacturer'],
                         found['vendor'])
        self.assertEqual('1', found['bmc']['id'])
        for part in 'cpus', 'memory', 'drives', 'enclosures':
            self.assertTrue(found[part], part)
        self.record('Inventory')

    def test_bios_settings(self):
        self.power('Off')
        settings = json.loads(self.run_program('gofish', 'bios'))
        self.assertEqual('Legacy', settings['BootMode'])
        self.record('GetBiosConfiguration')

    def test_accounts(self):
        """It knows numbered places only, and writes into an empty one."""
        accounts = '/redfish/v1/AccountService/Accounts'
        first, second = (secrets.token_hex(8) for _ in range(2))
        self.assertIn('no user account slots available', self.run_program(
            'gofish', 'create', 'guest', first, 'Operator', code=1))
        self.record('CreateUser', result='needs an empty account to change')
        account = self.request('POST', accounts, {
            'UserName': 'guest', 'Password': first, 'RoleId': 'ReadOnly'})
        for driver in 'gofish', 'ipmitool':
            self.assertIn('guest', self.run_program(driver, 'users'))
            self.record(f'ReadUsers ({driver})')
        self.run_program('gofish', 'update', 'guest', second, 'Operator')
        self.assertTrue(self.ipmi_login('guest', second, 'OPERATOR'))
        self.record('UpdateUser')
        self.run_program('gofish', 'delete', 'guest', code=1)
        self.assertTrue(self.ipmi_login('guest', second, 'OPERATOR'))
        self.record('DeleteUser', result='sets an empty name: refused')
        self.request('DELETE', account.headers['Location'])
