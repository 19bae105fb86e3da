# SPDX-License-Identifier: Apache-2.0
"""Test case for the behaviour of KubeVirt.

The sandbox must behave as KubeVirt does, so the tests run against the sandbox
or, with ``KUBEVIRT_API`` and others in the environment, against another
cluster (`given_cluster`). Tests cannot control the guests of
another cluster; those that need it are skipped there.
"""

import uuid

from kubevirt_sandbox.testing import case
from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import sandbox

DISKS = '/spec/template/spec/domain/devices/disks'
CARDS = '/spec/template/spec/domain/devices/interfaces'
VOLUMES = '/spec/template/spec/volumes'
SUBRESOURCES = ('/apis/subresources.kubevirt.io/v1/namespaces/'
                + sandbox.NAMESPACE)


class KubeVirtTestCase(case.FunctionalTestCase):
    """Test case with a cluster and VMs.

    :cvar external: whether the cluster is not a sandbox
    :cvar cluster: `sandbox.Sandbox`
    """

    BOOT_SECONDS = 0.1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.external = given_cluster.GIVEN
        cls.cluster = cls.share(
            given_cluster.GivenCluster(0) if cls.external
            else sandbox.Sandbox(0, cls.BOOT_SECONDS))

    def need_guests(self):
        """Skip the test if it cannot control the guests."""
        if self.external:
            self.skipTest('only the sandbox lets tests control guests')

    # Machines

    def describe(self, run='Halted', change=None, **domain):
        """Return a VirtualMachine with a root disk and a network card.

        :param run: run strategy
        :param change: function of (VM, spec of its VMI) that changes them
        :param domain: members of the domain
        """
        name = 'test-' + uuid.uuid4().hex[:10]
        spec = {
            'terminationGracePeriodSeconds': 30,
            'domain': {
                'memory': {'guest': '64Mi'},
                'devices': {
                    'disks': [{'name': 'root', 'bootOrder': 1,
                               'disk': {'bus': 'virtio'}}],
                    'interfaces': [{'name': 'default', 'masquerade': {}}],
                }, **domain},
            'networks': [{'name': 'default', 'pod': {}}],
            'volumes': [{'name': 'root', 'containerDisk': {
                'image': machines.MEDIUM}}]}
        vm = {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
              'metadata': {'name': name, 'namespace': sandbox.NAMESPACE},
              'spec': {'runStrategy': run, 'template': {
                  'metadata': {'labels': {'test': name}}, 'spec': spec}}}
        if change:
            change(vm, spec)
        return vm

    def make(self, run='Halted', change=None, **domain):
        """Create such a VM until the end of the test; return its name."""
        vm = self.cluster.create('virtualmachines',
                                 self.describe(run, change, **domain))
        name = vm['metadata']['name']
        self.addCleanup(self._remove, name)
        return name

    def make_running(self, run='Always', change=None, **domain):
        """Create a VM and wait until it runs.

        :returns: its name and the uid of its VMI
        """
        name = self.make(run, change, **domain)
        if run == 'Manual':
            self.cluster.do(name, 'start')
        return name, self.uid(name)

    def uid(self, name, other_than=None):
        """Wait for a running VMI and return its uid."""
        return self.cluster.wait_running(
            name, other_than=other_than)['metadata']['uid']

    def _remove(self, name):
        self.cluster.delete('virtualmachines', name)
        self.cluster.wait('virtualmachines', name, lambda vm: vm is None)

    def rejection(self, code, change=None, run='Halted', **domain):
        """Create an invalid VM; return the message of the error."""
        return self.call('POST', sandbox.path('virtualmachines'),
                         self.describe(run, change, **domain), code=code)

    # Calls

    def call(self, method, where, body=None, code=None, **more):
        """Make a call whose response is a Status.

        :returns: its message, '' if there is none
        """
        response = self.cluster.request(method, where, body, expect=code,
                                        **more)
        try:
            return response.json().get('message', '')
        except ValueError:
            return response.text

    def verb(self, name, verb, code, body=None, vmi=False):
        """Call a subresource of a VM or a VMI; return as `call` does."""
        plural = 'virtualmachineinstances' if vmi else 'virtualmachines'
        return self.call('PUT', f'{SUBRESOURCES}/{plural}/{name}/{verb}',
                         body, code)

    def patch_fails(self, name, body, code):
        """Send an invalid patch of a VM; return the message of the error."""
        kind = (sandbox.JSON_PATCH if isinstance(body, list)
                else sandbox.MERGE_PATCH)
        return self.call('PATCH', sandbox.path('virtualmachines', name),
                         body, code, content_type=kind)

    # Observed state

    def wait_vm(self, name, condition):
        """Wait until a VM meets a condition; return it."""
        return self.cluster.wait(
            'virtualmachines', name,
            lambda vm: vm is not None and condition(vm))

    def wait_vmi(self, name, condition):
        """Wait until a VMI, or None, meets a condition; return it."""
        return self.cluster.wait('virtualmachineinstances', name, condition)

    def wait_word(self, name, *words):
        """Wait for a printable status; return the VM."""
        return self.wait_vm(name, lambda vm: vm.get('status', {}).get(
            'printableStatus') in words)

    def wait_condition(self, name, kind, status):
        """Wait for a condition of a VM; None: until it has none."""
        return self.wait_vm(name, lambda vm: self.state(vm, kind) == status)

    @staticmethod
    def state(obj, kind):
        """Return the status of a condition, or None."""
        for condition in (obj.get('status') or {}).get('conditions') or ():
            if condition['type'] == kind:
                return condition['status']
        return None

    def devices(self, name):
        """Return the devices of a VMI."""
        return self.cluster.vmi(name)['spec']['domain']['devices']
