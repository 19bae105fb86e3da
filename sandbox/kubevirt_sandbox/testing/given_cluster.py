# SPDX-License-Identifier: Apache-2.0
"""A given cluster with KubeVirt in place of a sandbox, used by its API only.

Environment variables name it: ``KUBEVIRT_API`` (URL of the API server),
``KUBEVIRT_TOKEN`` (of an administrator), ``KUBEVIRT_CA`` (file of the CA;
without it the certificate is not verified), ``KUBEVIRT_NAMESPACE`` (of the
tests' objects, default ``default``) and ``KUBEVIRT_MEDIUM`` (container disk
that the nodes can pull).

Tests that need what only a sandbox has are skipped when they use it; the
reason says what. What a VM boots is read from its VMIs, see `boot_record`.
Tests of one cluster must not run in parallel.
"""

import base64
import os
import pathlib
import unittest

import fixtures
import yaml

from kubevirt_sandbox.testing import boot_record
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import sandbox

#: Whether there is one.
GIVEN = bool(os.environ.get('KUBEVIRT_API'))

#: Prefix of annotations that tell a sandbox how a guest behaves.
_GUEST = 'sandbox.sushy-kubevirt/'

# Annotation of what tests apply: an object without any field, such as a
# ServiceAccount, would have no manager.
_APPLIED = 'tests.sushy-kubevirt/applied'

# Tests with a larger value depend on how long a guest takes to start; others
# wait for it.
_BOOT_SECONDS = 1

# Time limits are this many times those of a sandbox, where all is fast: on
# nodes without KVM a blank import or a start takes minutes.
_PATIENCE = 20

_FAULTS = "needs the sandbox's fault injection"
_GUESTS = "needs the sandbox's control of guests"
_COUNTS = "needs the sandbox's record of API calls"
_PROCESS = 'needs a sandbox that it can stop'


def _only_sandbox(why):
    def method(self, *args, **kwargs):
        raise unittest.SkipTest(f'the test {why}')
    return method


def _is_ours(obj):
    """Tell whether only tests have written an object, apart from its status.

    That is so if it was applied before in the same test, or left by a test
    that was killed.
    """
    managers = {each.get('manager')
                for each in obj['metadata'].get('managedFields') or ()
                if not each.get('subresource')}
    return managers == {sandbox.MANAGER}


def needs_sandbox(why):
    """Decorate a test or a class that cannot use a given cluster.

    :param why: what it needs, continues "the test needs"
    """
    return unittest.skipIf(GIVEN, f'the test needs {why}')


class GivenCluster(sandbox.Sandbox):
    """The cluster of the environment; see `sandbox.Sandbox`.

    At the end, what was created or applied by its methods is deleted, and the
    feature gates are as before. Objects of others are not applied.
    """

    external = True

    def _setUp(self):
        if self.arguments:
            raise unittest.SkipTest('the test needs a sandbox with '
                                    + ' '.join(map(str, self.arguments)))
        if self.boot_seconds > _BOOT_SECONDS:
            raise unittest.SkipTest(
                f'the test {_GUESTS}, which take {self.boot_seconds:g} s to '
                'start')
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.url = os.environ['KUBEVIRT_API'].rstrip('/')
        self.token = os.environ.get('KUBEVIRT_TOKEN', '')
        authorities = os.environ.get('KUBEVIRT_CA')
        self._gates = None
        self._open_session(authorities or False)
        cluster = {'server': self.url}
        if authorities:
            self.ca = home / 'ca.crt'
            self.ca.write_bytes(pathlib.Path(authorities).read_bytes())
            cluster['certificate-authority-data'] = base64.b64encode(
                self.ca.read_bytes()).decode()
        else:
            cluster['insecure-skip-tls-verify'] = True
        self.kubeconfig = home / 'kubeconfig'
        self.kubeconfig.touch(0o600)
        self.kubeconfig.write_text(yaml.safe_dump({
            'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'given',
            'clusters': [{'name': 'given', 'cluster': cluster}],
            'users': [{'name': 'given', 'user': {'token': self.token}}],
            'contexts': [{'name': 'given', 'context': {
                'cluster': 'given', 'user': 'given',
                'namespace': sandbox.NAMESPACE}}]}))
        self._boots = {}
        # Of the other namespaces when they are asked for.
        self._boots_of(sandbox.NAMESPACE)
        self._created = []
        self.addCleanup(self._delete_created)
        for number in range(self.vms):
            self._make_sample(f'vm-{number}')

    def _make_sample(self, name):
        """Create a VM like those of ``kubevirt-sandbox --vms``."""
        vm = machines.vm(name, 'Halted')
        spec = vm['spec']['template']['spec']
        spec['terminationGracePeriodSeconds'] = 30
        spec['domain']['memory'] = {'guest': '2Gi'}
        for order, device in enumerate((
                spec['domain']['devices']['disks'][0],
                spec['domain']['devices']['interfaces'][0]), 1):
            device['bootOrder'] = order
        # The drive is empty.
        del spec['volumes'][1]
        self.create('virtualmachines', vm)
        self.wait('virtualmachines', name, lambda vm: vm.get(
            'status', {}).get('printableStatus') == 'Stopped')

    def _delete_created(self):
        """Delete what was created, and wait until no VM of it is left."""
        for at in reversed(self._created):
            self.delete(*at)
        for plural, name, namespace in self._created:
            if plural == 'virtualmachines':
                self.wait(plural, name, lambda vm: vm is None, namespace)

    def create(self, plural, obj, namespace=sandbox.NAMESPACE):
        """Create an object, unless it asks for a simulated guest."""
        template = (obj.get('spec') or {}).get('template') or {}
        if any(name.startswith(_GUEST) for name in (
                template.get('metadata', {}).get('annotations') or ())):
            raise unittest.SkipTest(f'the test {_GUESTS}')
        made = super().create(plural, obj, namespace)
        self._created.append((plural, made['metadata']['name'], namespace))
        return made

    def _apply(self, where, obj):
        found = self.request('GET', where)
        if found.status_code != 404:
            found.raise_for_status()
            if not _is_ours(found.json()):
                raise AssertionError(
                    f'The cluster has {where} already, and the tests would '
                    'change and then delete it. Use a cluster without an '
                    'installed operator or emulator, or delete the object.')
        obj['metadata'].setdefault('annotations', {})[_APPLIED] = 'true'
        super()._apply(where, obj)
        self.addCleanup(self.request, 'DELETE', where)

    def has_scheduler(self) -> bool:
        """Whether kube-scheduler holds its Lease."""
        return self.request('GET', sandbox.path(
            'leases', 'kube-scheduler', 'kube-system')).status_code == 200

    def wait(self, plural, name, condition, namespace=sandbox.NAMESPACE,
             timeout=30):
        """Wait as `sandbox.Sandbox.wait` does, but longer."""
        return super().wait(plural, name, condition, namespace,
                            timeout * _PATIENCE)

    def set_gates(self, on=(), off=()):
        """Enable and disable feature gates until the end of the fixture."""
        if self._gates is None:
            kubevirt = self.list('kubevirts', namespace=None)[0]
            self._gates = kubevirt['spec'].get('configuration', {}).get(
                'developerConfiguration', {})
            self.addCleanup(
                lambda: super(GivenCluster, self).set_gates(
                    self._gates.get('featureGates', ()),
                    self._gates.get('disabledFeatureGates', ())))
        super().set_gates(on, off)

    def _boots_of(self, namespace):
        if namespace not in self._boots:
            self._boots[namespace] = self.useFixture(boot_record.BootRecord(
                self.request, sandbox.path('virtualmachineinstances',
                                           namespace=namespace)))
        return self._boots[namespace]

    def guest(self, name, namespace=sandbox.NAMESPACE):
        """Read ``vmi``, ``running`` and ``boots``, as of a sandbox's guest."""
        vmi = self.vmi(name, namespace)
        running = vmi is not None and vmi.get('status', {}).get(
            'phase') == 'Running'
        return {'vmi': vmi['metadata']['uid'] if running else None,
                'running': running, 'boots': self.boots(name, namespace)}

    def boots(self, name, namespace=sandbox.NAMESPACE):
        """List what a VM's VMIs have booted; see `boot_record`."""
        return self._boots_of(namespace).of(name)

    def wait_boot(self, name, count, namespace=sandbox.NAMESPACE,
                  timeout=30):
        """Wait as `sandbox.Sandbox.wait_boot` does, but longer."""
        return self._boots_of(namespace).wait(name, count,
                                              timeout * _PATIENCE)

    def clear_faults(self):
        """Do nothing: there are none."""

    def reset_stats(self):
        """Do nothing: it is an error to read them."""

    fault = faults = outage = is_available = _only_sandbox(_FAULTS)
    guest_does = _only_sandbox(_GUESTS)
    stats = _only_sandbox(_COUNTS)
    process = property(_only_sandbox(_PROCESS))
