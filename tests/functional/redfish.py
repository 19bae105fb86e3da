# SPDX-License-Identifier: Apache-2.0
"""A test case whose tests have a VM of their own behind an emulator."""

import itertools
import time

import sushy

from kubevirt_sandbox.testing import machines
from tests.functional import base

SYSTEMS = '/redfish/v1/Systems'

_names = ('redfish-%d' % number for number in itertools.count(1))


def new_name():
    """A name that no other test's VM has."""
    return next(_names)


class RedfishTestCase(base.EmulatorTestCase):
    """Each test has a VM of its own: ``name``, ``uuid``, ``path``."""

    VMS = 0

    def make(self, run_strategy='Halted', namespace='default', name=None,
             **spec):
        self.name = name or new_name()
        vm = self.sandbox.create('virtualmachines', machines.vm(
            self.name, run_strategy, namespace, **spec), namespace)
        self.uuid = machines.uuid_of(vm)
        self.path = f'{SYSTEMS}/{self.uuid}'
        self.appears(self.uuid)
        return vm

    def appears(self, uuid):
        """Wait until the emulator's watch has told of a VM."""
        self.until(lambda: self.emulator.request(
            'GET', f'{SYSTEMS}/{uuid}').status_code == 200)

    def until(self, condition, timeout=30):
        """Wait for what only asking again can tell."""
        deadline = time.monotonic() + timeout
        while not (found := condition()):
            if time.monotonic() >= deadline:
                raise AssertionError(f'not so within {timeout:g} s')
            time.sleep(0.02)
        return found

    def power_state(self, state):
        return self.until(lambda: self.emulator.system(self.uuid)[
            'PowerState'] == state)

    def sushy(self):
        """The system, as the sushy library sees it."""
        root = sushy.Sushy(self.emulator.url + '/redfish/v1/')
        return root.get_system(self.path)

    def refused(self, method, where, body, code, **options):
        """Make a call that is refused; the error's messages."""
        response = self.emulator.request(method, where, body, expect=code,
                                         **options)
        self.assertEqual('application/json',
                         response.headers['Content-Type'])
        self.assertNotIn('Traceback', response.text)
        error = response.json()['error']
        for entry in error['@Message.ExtendedInfo']:
            for member in ('MessageId', 'Message', 'MessageArgs',
                           'MessageSeverity', 'Resolution'):
                self.assertIn(member, entry)
        return [(entry['MessageId'].rpartition('.')[2],
                 *entry['MessageArgs'])
                for entry in error['@Message.ExtendedInfo']]
