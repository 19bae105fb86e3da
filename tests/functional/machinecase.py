# SPDX-License-Identifier: Apache-2.0
"""Machines of a sandbox, without Redfish or IPMI in between.

`MachineTestCase` is the package as a BMC process uses it, in the test's own
process; `Driver` is a process of its own that can be killed between any two
writes.
"""

import itertools
import json
import subprocess
import sys
import time

from kubevirt_sandbox.testing import machines
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import annotations
from sushy_kubevirt.machine import boot_overrides
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_state
from tests.functional import base
from tests.functional import checkout
from tests.functional import driver

IGNORE_ACPI = 'sandbox.sushy-kubevirt/ignore-acpi'
FAIL_START = 'sandbox.sushy-kubevirt/fail-start'
UNBOOTABLE = 'sandbox.sushy-kubevirt/unbootable'
MISSING_IMAGE = 'example.test/missing:1'

#: What can happen to one write. After drop-after it was carried out.
BAD_MOMENTS = ('409', '429', '500', '503', 'reset', 'drop-after')

OFF = power_state.PowerState.OFF
ON = power_state.PowerState.ON

_names = ('m-%d' % number for number in itertools.count(1))


class MachineTestCase(base.SandboxTestCase):
    """VMs of the test's own, and BMCs for them."""

    VMS = 0
    BOOT_SECONDS = 0.1

    #: ``!`` for BMCs of one machine each.
    ALONE = ''

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.account = cls.sandbox.bmc_account()
        cls.connection = connection.Connection.from_options(
            str(cls.account))

    def account_of(self, name):
        """The kubeconfig of whoever is the BMC of a machine."""
        return self.account

    def bmc(self, **settings):
        """What a BMC process has: a cluster, with its keeper."""
        settings = dict(dict(
            write_deadline=10, request_timeout=3, watch_backoff=0.5,
            gates_seconds=0), **settings)
        made = cluster.Cluster(self.connection, ('default',),
                               options=options.Options(**settings))
        self.addCleanup(made.close)
        made.wait_ready()
        return made

    def make(self, strategy='RerunOnFailure', change=None, annotations=None,
             grace=5, **spec):
        """Create a VM.

        :param change: function that edits it before
        :param annotations: of the VMIs to be made
        :returns: its name
        """
        vm = machines.vm(next(_names), strategy, **spec)
        template = vm['spec']['template']
        template['spec']['terminationGracePeriodSeconds'] = grace
        if annotations:
            template['metadata']['annotations'] = annotations
        if change:
            change(template['spec'])
        name = vm['metadata']['name']
        self.addCleanup(self.sandbox.delete, 'virtualmachines', name)
        self.sandbox.create('virtualmachines', vm)
        self.sandbox.wait('virtualmachines', name, lambda vm: vm.get(
            'status', {}).get('printableStatus'))
        return name

    def machine(self, strategy='RerunOnFailure', bmc=None, off=True, **kwargs):
        """A VM and a BMC's handle of it.

        :param off: wait until it is off, whatever its strategy does to a new
            VM; False: until it runs
        """
        name = self.make(strategy, **kwargs)
        bmc = bmc or self.bmc()
        if strategy == 'Manual' and not off:
            self.sandbox.do(name, 'start')
        if off and strategy in ('RerunOnFailure', 'Always', 'Once'):
            # A new VM starts under these: let it run once, then end it.
            self.sandbox.wait_running(name)
            self.handle(bmc, name).reset(power_state.ResetType.FORCE_OFF)
            self.sandbox.wait_stopped(name)
        elif not off:
            self.sandbox.wait_running(name)
        machine = self.handle(bmc, name)
        self.becomes(machine, OFF if off else ON)
        return machine

    def handle(self, bmc, name):
        """A BMC's handle of a VM it may not have heard of yet."""
        found = []

        def look():
            try:
                found.append(bmc.machine(name))
            except errors.MachineNotFound:
                return False
            return True

        self.until('a machine ' + name, look)
        return found[0]

    def becomes(self, machine, state, seconds=45):
        """Wait until the machine has a power state."""
        self.assertTrue(
            machine.wait(lambda vm, vmi: power_state.state(vm, vmi) is state,
                         seconds),
            '%s is %s, not %s: %s' % (
                machine, machine.power_state(), state,
                json.dumps(machine.objects())[-3000:]))

    def strategy(self, name):
        return self.sandbox.vm(name)['spec'].get('runStrategy')

    def annotations(self, name):
        """The annotations of ours."""
        found = self.sandbox.vm(name)['metadata'].get('annotations') or {}
        return {key: value for key, value in found.items()
                if key.startswith('sushy-kubevirt.openstack.org/')}

    def uid(self, name):
        vmi = self.sandbox.vmi(name)
        return vmi and vmi['metadata']['uid']

    def vmis(self, name):
        """uids of all VMIs whose guests ever booted, in order."""
        found = []
        for boot in self.sandbox.boots(name):
            if boot['vmi'] not in found:
                found.append(boot['vmi'])
        return found

    def fault_hits(self):
        """How often each fault was hit that is set."""
        return [fault['hits'] for fault in self.sandbox.faults()['faults']]

    def put_back(self, name):
        """Wait until the next VMI is not made like the one there is.

        The override reads as over a moment before.
        """
        def so():
            once = boot_overrides.once(self.sandbox.vm(name))
            return once is None or once['id'] != annotations.mark(
                self.sandbox.vmi(name))

        self.until('put back', so)

    def until(self, what, check, seconds=45):
        """Ask again and again, for what has no watch."""
        deadline = time.monotonic() + seconds
        while not check():
            if time.monotonic() >= deadline:
                self.fail(f'{what} did not come in {seconds:g} s')
            time.sleep(0.02)

    def stays(self, check, seconds=0.6):
        """See that something stays so, for as long as a VM would take to
        start or stop if it wanted to.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.assertTrue(check())
            time.sleep(0.05)

    def drive(self, name, *words, writes=None):
        """Do something from another process.

        :param words: see `driver`
        :param writes: kill it after so many writes; None lets it finish
        :returns: whether it finished
        """
        done = subprocess.run(
            [sys.executable, '-m', driver.__name__,
             str(self.account_of(name)), name,
             ('-1' if writes is None else str(writes)) + self.ALONE, *words],
            cwd=checkout.ROOT, timeout=60, capture_output=True, text=True)
        if done.returncode not in (0, -9):
            self.fail(done.stderr[-3000:])
        return done.returncode == 0
