# SPDX-License-Identifier: Apache-2.0
"""References of a BMC to its VM and its Secret.

A VM or Secret may be created after its BMC, be deleted, be created again, or
be in another namespace.
"""

import json

from kubevirt_sandbox.testing import machines
from tests.fixtures import operator

ALLOW = 'bmc.kubevirt.io/allow-from'


class ReferencesTestCase(operator.OperatorTestCase):

    def setUp(self):
        super().setUp()
        self.mark = self.operator.process.mark()
        self.sandbox.reset_stats()

    def tearDown(self):
        self.assert_no_warnings(self.mark)
        super().tearDown()

    def wait_unready(self, bmc, reason):
        self.until('reason', bmc.condition, ('False', reason))

    def test_vm_created_later_deleted_and_recreated(self):
        password = self.secret()
        self.kubectl.apply(operator.bmc_manifest('box', secret='box-bmc'))
        box = operator.Bmc(self.kubectl, 'box', 'admin', password)
        self.wait_unready(box, 'VirtualMachineNotFound')
        self.assertIn(f'VirtualMachine {self.namespace}/box does not exist',
                      box.message())
        self.vm()
        box.ready()
        self.until('power', box.works, 'Off')
        pids = box.processes()
        box.ipmi('power', 'on')
        self.sandbox.wait_running('box', self.namespace)
        self.until('power', box.works, 'On')

        self.kubectl('delete', 'vm', 'box')
        self.wait_unready(box, 'VirtualMachineNotFound')
        self.until('no system', lambda: box.curl().code, 404)

        # A new VM of the same name.
        new = machines.vm('box', 'Halted', self.namespace)
        self.kubectl.apply(new)
        box.ready()
        self.until('power', box.works, 'Off')
        self.assertEqual(machines.uuid_of(new), box.curl().json()['UUID'])
        box.ipmi('power', 'on')
        self.sandbox.wait_running('box', self.namespace)
        self.until('power', box.works, 'On')
        self.assertEqual(pids, box.processes())
        # The state of the emulators belongs to that VM.
        uid = self.sandbox.vm('box', self.namespace)['metadata']['uid']
        state = self.kubectl.get('secret', 'box-bmc-state')
        self.assertEqual([uid], [one['uid'] for one in state['metadata'][
            'ownerReferences']])

    def test_secret_created_later_and_incomplete(self):
        self.vm()
        self.kubectl.apply(operator.bmc_manifest('box', secret='box-bmc'))
        box = operator.Bmc(self.kubectl, 'box', 'admin', None)
        self.wait_unready(box, 'SecretNotFound')
        self.assertIn(f'{self.namespace}/box-bmc', box.message())
        self.assertEqual(('True', 'VirtualMachineFound'), box.condition(
            'VirtualMachineAvailable'))
        self.kubectl('create', 'secret', 'generic', 'box-bmc',
                     '--from-literal=username=admin')
        self.wait_unready(box, 'SecretIncomplete')
        self.assertIn('password', box.message())
        box.password = self.secret()
        box.ready()
        self.until('power', box.works, 'Off')

    def test_deleted_secret(self):
        box = self.bmc().ready()
        pids = box.processes()
        self.kubectl('delete', 'secret', 'box-bmc')
        self.wait_unready(box, 'SecretNotFound')
        # The BMC still accepts the old password.
        self.assertEqual('Off', box.works())
        old, box.password = box.password, self.secret()
        box.ready()
        self.until('power', lambda: box.curl().code, 200)
        self.until('power', box.works, 'Off')
        self.assertEqual(401, box.curl(password=old).code)
        self.assertEqual(pids, box.processes())

    def test_rotated_credentials(self):
        box = self.bmc().ready()
        pids = box.processes()
        for username in ('admin', 'root'):
            old = box.username, box.password
            box.password = self.secret(username=username)
            box.username = username
            self.until('Redfish', lambda: box.curl().code, 200)
            self.until('IPMI', lambda: box.ipmitool(
                'power', 'status').returncode, 0)
            self.assertEqual('Off', box.works())
            was = operator.Bmc(self.kubectl, 'box', *old)
            self.assertEqual(401, was.curl(ca=box.ca_file()).code)
            self.assertNotEqual(0, was.ipmitool(
                'power', 'status', options=('-N', '1', '-R', '1')
            ).returncode)
        self.assertEqual(pids, box.processes())
        self.assertEqual(('True', 'ServiceReady'), box.condition())

    # Another namespace

    def other_namespace(self):
        """Create a VM and a Secret in another namespace.

        :returns: :class:`kubectl.Kubectl` for that namespace
        """
        namespace = self.new_namespace()
        self.vm('far', namespace=namespace)
        self.far_password = self.secret('far-bmc', namespace=namespace)
        return self.admin.within(namespace)

    def far_bmc(self, there, **more):
        self.kubectl.apply(operator.bmc_manifest(
            'box', virtualMachine={
                'name': 'far', 'namespace': there.namespace}, **more))
        return operator.Bmc(self.kubectl, 'box', 'admin', self.far_password)

    def roles_in(self, there):
        return there.names('roles,rolebindings', '-l',
                           operator.LABEL + 'box')

    def may(self, verb, what, there):
        """Return whether the BMC's account has a permission there."""
        return self.admin.run(
            'auth', 'can-i', verb, what, '-n', there.namespace, '--as',
            f'system:serviceaccount:{self.namespace}:box-virtbmc'
        ).returncode == 0

    def test_other_namespace_needs_permission(self):
        there = self.other_namespace()
        box = self.far_bmc(there, authSecret={
            'name': 'far-bmc', 'namespace': there.namespace})
        self.wait_unready(box, 'ReferenceNotPermitted')
        self.assertIn(ALLOW + '=' + self.namespace, box.message())
        self.assertEqual([], self.roles_in(there))
        self.assertEqual([], self.kubectl.names('deployments,secrets'))
        # Other namespaces and patterns do not match.
        for allowed in ('other', self.namespace + '-x', '*', ''):
            there('annotate', '--overwrite', 'vm/far', 'secret/far-bmc',
                  ALLOW + '=' + allowed)
        # Only the VM is allowed.
        there('annotate', '--overwrite', 'vm/far',
              f'{ALLOW}=other, {self.namespace}')
        self.until('vm', lambda: box.condition('VirtualMachineAvailable'),
                   ('True', 'VirtualMachineFound'))
        self.wait_unready(box, 'ReferenceNotPermitted')
        self.assertIn('Secret', box.message())
        self.assertEqual([], self.kubectl.names('deployments,secrets'))
        there('annotate', '--overwrite', 'secret/far-bmc',
              ALLOW + '=' + self.namespace)
        box.ready()
        self.until('power', box.works, 'Off')
        self.assertTrue(self.may('get', 'vm/far', there))
        self.assertFalse(self.may('get', 'vm/other', there))
        self.assertFalse(self.may('get', 'secret/far-bmc', there))
        box.ipmi('power', 'on')
        self.sandbox.wait_running('far', there.namespace)

        # The copy of the Secret is updated.
        box.password = self.secret('far-bmc', namespace=there.namespace)
        there('annotate', '--overwrite', 'secret/far-bmc',
              ALLOW + '=' + self.namespace)
        self.until('new password', lambda: box.curl().code, 200)
        self.until('power', box.works, 'On')

        # Withdrawn permission removes Role, copy and pod.
        there('annotate', 'secret/far-bmc', ALLOW + '-')
        self.wait_unready(box, 'ReferenceNotPermitted')
        self.until('gone', lambda: [one for one in self.kubectl.names(
            'deployments,pods,secrets') if not one.endswith('-tls')], [])
        self.assertEqual([], self.roles_in(there))
        self.assertFalse(self.may('get', 'vm/far', there))
        there('annotate', 'secret/far-bmc', ALLOW + '=' + self.namespace)
        box.ready()
        there('annotate', '--overwrite', 'vm/far', ALLOW + '=other')
        self.wait_unready(box, 'ReferenceNotPermitted')
        self.until('gone', lambda: self.roles_in(there), [])
        self.assertFalse(self.may('get', 'vm/far', there))

    def test_objects_in_other_namespace_are_deleted(self):
        there = self.other_namespace()
        there('annotate', 'vm/far', ALLOW + '=' + self.namespace)
        self.far_bmc(there)
        for how in ('vmbmc', 'namespace', 'far namespace'):
            box = self.far_bmc(there)
            box.ready()
            self.assertEqual(2, len(self.roles_in(there)))
            if how == 'vmbmc':
                self.kubectl('delete', 'vmbmc', 'box', '--timeout=30s')
                self.until('nothing left', self.owned, [])
            elif how == 'namespace':
                self.admin('delete', 'namespace', self.namespace,
                           '--timeout=60s')
                self.namespace = self.new_namespace()
                self.kubectl = self.admin.within(self.namespace)
                there('annotate', '--overwrite', 'vm/far',
                      ALLOW + '=' + self.namespace)
            else:
                self.admin('delete', 'namespace', there.namespace,
                           '--timeout=60s')
                self.wait_unready(box, 'ReferenceNotPermitted')
                self.kubectl('delete', 'vmbmc', 'box', '--timeout=30s')
                self.until('nothing left', self.owned, [])
                break
            self.assertEqual([], self.roles_in(there), how)
            # The VM and its state stay.
            self.assertEqual(['virtualmachine.kubevirt.io/far'],
                             there.names('vm'))

    def test_removed_finalizer_grants_no_permissions(self):
        """Permission to change a BMC grants no lasting permissions."""
        there = self.other_namespace()
        there('annotate', 'vm/far', ALLOW + '=' + self.namespace)
        self.far_bmc(there).ready()
        self.assertTrue(self.may('patch', 'vm/far', there))
        mark = self.operator.process.mark()
        # Faster than the operator restores the finalizer.
        self.sandbox.patch('virtualmachinebmcs', 'box', {
            'metadata': {'finalizers': None}}, self.namespace)
        self.sandbox.delete('virtualmachinebmcs', 'box', self.namespace)
        self.kubectl('wait', 'vmbmc/box', '--for=delete', '--timeout=30s')
        self.until('gone', lambda: self.roles_in(there), [])
        self.assertFalse(self.may('patch', 'vm/far', there))
        for line in self.operator.warnings(mark):
            self.assertIn('without its finalizer', line['message'])
        self.mark = self.operator.process.mark()

    def test_secret_of_other_namespace_only(self):
        there = self.other_namespace()
        self.vm()
        there('annotate', 'secret/far-bmc', ALLOW + '=' + self.namespace)
        self.kubectl.apply(operator.bmc_manifest(
            'box', virtualMachine={'name': 'box'},
            authSecret={'name': 'far-bmc', 'namespace': there.namespace}))
        box = operator.Bmc(self.kubectl, 'box', 'admin', self.far_password)
        box.ready()
        self.until('power', box.works, 'Off')
        self.assertEqual([], self.roles_in(there))
        self.assertEqual('box-virtbmc-auth', box.status['authSecret'])
        self.kubectl('delete', 'vmbmc', 'box', '--timeout=30s')
        self.until('nothing left', self.owned, [])
        self.assertEqual(['secret/far-bmc'], [
            one for one in there.names('secrets') if 'state' not in one])

    def test_finalizer_exists_only_when_needed(self):
        there = self.other_namespace()
        box = self.bmc()
        box.ready()
        self.assertNotIn('finalizers', box.resource['metadata'])
        self.kubectl('delete', 'vmbmc', 'box')
        far = self.far_bmc(there)
        self.wait_unready(far, 'ReferenceNotPermitted')
        self.assertNotIn('kopf', json.dumps(far.resource))
