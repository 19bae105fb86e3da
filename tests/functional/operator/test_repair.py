# SPDX-License-Identifier: Apache-2.0
"""The operator restores objects of a BMC that users delete, edit or stop."""

import base64
import json
import os
import signal

from kubevirt_sandbox.testing import process
from tests.fixtures import operator
from tests.fixtures import processes

# What the cluster says of an object and the operator has no say in.
GIVEN = ('annotations', 'creationTimestamp', 'generation', 'managedFields',
         'resourceVersion', 'uid')


def bare(obj):
    """What was wanted of an object, of all that the API shows."""
    obj = dict(obj, metadata={
        key: value for key, value in obj['metadata'].items()
        if key not in GIVEN})
    obj.pop('status', None)
    return obj


class UpkeepTestCase(operator.OperatorTestCase):

    def setUp(self):
        super().setUp()
        self.mark = self.operator.process.mark()
        self.box = self.bmc(secret=None, networkPolicy={
            'enabled': True, 'allowedCIDRs': ['127.0.0.0/8']})
        self.box.ready()
        self.read_password()
        self.mine = [one for one in self.owned() if not one.startswith(
            ('pod/', 'replicaset.apps/'))]

    def read_password(self):
        found = self.kubectl.get('secret', self.box.base + '-auth')['data']
        self.box.username, self.box.password = (
            base64.b64decode(found[key]).decode()
            for key in ('username', 'password'))
        self.passwords.add(self.box.password)

    def snapshot(self):
        """What is wanted, by name."""
        return {name: bare(self.kubectl.get(name)) for name in self.mine}

    def replaced(self, name, uid):
        """Whether there is another object of that name, and it is whole."""
        done = self.kubectl.run('get', name, '-o', 'json')
        if done.returncode:
            return False
        return json.loads(done.stdout)['metadata']['uid'] != uid

    def well(self):
        """All is there, and clients are served."""
        self.box.ready()
        self.until('power', self.box.works, 'Off')
        self.quiet(self.mark)

    def test_deleted(self):
        kinds = {name.partition('/')[0] for name in self.mine}
        self.assertEqual(
            {'configmap', 'deployment.apps', 'networkpolicy.networking.k8s.io',
             'role.rbac.authorization.k8s.io',
             'rolebinding.rbac.authorization.k8s.io', 'secret', 'service',
             'serviceaccount'}, kinds)
        for name in self.mine:
            before = self.kubectl.get(name)
            self.kubectl('delete', name, '--wait=false')
            self.until(name, lambda name=name, uid=before['metadata']['uid']:
                       self.replaced(name, uid))
            after = bare(self.kubectl.get(name))
            if name.startswith('secret/'):
                # A new password, a new certificate.
                self.assertEqual(before['data'].keys(), after['data'].keys())
            elif name.startswith('service/'):
                # It has another address; it may have another port.
                self.assertEqual(before['spec']['selector'],
                                 after['spec']['selector'])
            else:
                self.assertEqual(bare(before), after)
        self.read_password()
        self.well()

    def test_all_deleted_at_once(self):
        self.kubectl('delete', operator.OWNED, '-l',
                     operator.LABEL + self.box.name, '--wait=false')
        self.until('all is back', lambda: [
            one for one in self.mine if one not in self.owned()], [])
        self.read_password()
        self.well()

    def test_edited(self):
        base = self.box.base
        before = self.snapshot()
        nothing = {'operator': None}
        for name, *words in (
                ('deployment', 'scale', 'deployment/' + base, '--replicas=0'),
                ('deployment', 'scale', 'deployment/' + base, '--replicas=3'),
                ('deployment', 'set', 'image', 'deployment/' + base,
                 'redfish=evil.example.test/other:1'),
                ('deployment', 'set', 'env', 'deployment/' + base,
                 'VIRTBMC_VM=other/vm', '-c', 'ipmi'),
                ('deployment', 'edit', 's/type: Recreate/type: RollingUpdate/'
                 ),
                ('deployment', 'edit', 's/runAsNonRoot: true/'
                                       'runAsNonRoot: false/'),
                ('service', 'edit', 's/port: 443/port: 8443/'),
                ('service', 'patch', {'spec': {'selector': nothing | {
                    'app': 'other'}}}),
                ('service', 'patch', {'spec': {'type': 'NodePort'}}),
                ('role', 'patch', {'rules': [{
                    'apiGroups': ['*'], 'resources': ['*'],
                    'verbs': ['*']}]}),
                ('rolebinding', 'patch', {'subjects': [{
                    'kind': 'User', 'name': 'mallory',
                    'apiGroup': 'rbac.authorization.k8s.io'}]}),
                ('configmap', 'patch', {'data': {'emulator.conf': 'x = 1'}}),
                ('configmap', 'patch', {'data': None}),
                ('networkpolicy', 'patch', {'spec': {'ingress': [{}]}}),
                ('networkpolicy', 'edit', 's/127.0.0.0/0.0.0.0/'),
                ('serviceaccount', 'label', 'app.kubernetes.io/name-'),
                ('deployment', 'label', operator.LABEL + 'other',
                 '--overwrite')):
            verb, *words = words
            if words and isinstance(words[0], dict):
                words = ['--type=merge', '-p', json.dumps(words[0])]
            if verb == 'edit':
                self.kubectl.edit(f'{name}/{base}', words[0])
            elif verb in ('scale', 'set'):
                self.kubectl(verb, *words)
            else:
                self.kubectl(verb, name, base, *words)
            what = next(one for one in self.mine if one.partition('/')[
                0].partition('.')[0] == name and one.endswith('/' + base))
            self.until(' '.join((name, verb, *words)), lambda what=what: bare(
                self.kubectl.get(what)), before[what])
        self.well()
        self.assertEqual(before, self.snapshot())

    def test_a_binding_to_another_role(self):
        """A reference that cannot be changed: it is made anew."""
        name = 'rolebinding/' + self.box.base
        before = self.kubectl.get(name)
        self.kubectl('delete', name, '--wait=false')
        self.kubectl.run('create', 'rolebinding', self.box.base,
                         '--role=other', '--user=mallory')
        # Whoever was first: it is the operator's, or nobody's but mallory's.
        self.until('settled', lambda: bool(self.kubectl.run(
            'get', name).returncode == 0))
        found = self.kubectl.get(name)
        if found['roleRef']['name'] == 'other':
            self.until('reason', lambda: self.box.condition(),
                       ('False', 'NameTaken'))
            self.assertIn('RoleBinding ' + self.box.base, self.box.message())
            self.kubectl('delete', name)
        self.until('binding', lambda: bare(self.kubectl.get(name)),
                   bare(before))
        self.well()

    def test_what_others_add_stays(self):
        """Only managed fields are restored; a manual restart is possible."""
        deployment = 'deployment/' + self.box.base
        self.kubectl('annotate', 'service', self.box.base, 'mine=yes')
        self.kubectl('label', deployment, 'team=blue')
        old = self.box.processes()
        self.kubectl('rollout', 'restart', deployment)
        self.kubectl('rollout', 'status', deployment, '--timeout=60s')
        self.until('pod', lambda: bool(
            set(old) & set(self.box.processes())), False)
        self.well()
        self.assertEqual('yes', self.kubectl.get('service', self.box.base)[
            'metadata']['annotations']['mine'])
        self.assertEqual('blue', self.kubectl.get(deployment)['metadata'][
            'labels']['team'])

    def test_the_pod_deleted(self):
        self.kubectl('delete', 'pods', '-l',
                     operator.LABEL + self.box.name)
        self.well()

    def test_a_process_killed(self):
        pod = self.kubectl.get('pods', '-l', operator.LABEL + self.box.name)[
            'items'][0]['metadata']
        for command in ('sushy-kubevirt-redfish', 'sushy-kubevirt-ipmi'):
            for pid in (set(process.running(command))
                        & set(processes.with_environment(pod['uid']))):
                os.kill(pid, signal.SIGKILL)
        self.until('restarts', lambda: [one[2] for one in
                                        self.box.processes()], [1, 1])
        self.well()

    def test_a_password_taken_away(self):
        old = self.box.password
        self.kubectl('patch', 'secret', self.box.base + '-auth',
                     '--type=merge', '-p', '{"data":{"password":null}}')
        self.until('a password', lambda: 'password' in self.kubectl.get(
            'secret', self.box.base + '-auth')['data'])
        self.read_password()
        self.assertNotEqual(old, self.box.password)
        self.until('power', lambda: self.box.curl().code, 200)
        self.well()

    def test_names_that_are_taken(self):
        """Foreign objects are left alone and reported."""
        self.vm('other')
        made = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {
            'name': 'other-virtbmc'}, 'data': {'precious': '1'}}
        self.kubectl.apply(made)
        before = self.kubectl.get('configmap', 'other-virtbmc')
        other = self.bmc('other', 'other')
        self.until('reason', other.condition, ('False', 'NameTaken'))
        self.assertIn('ConfigMap other-virtbmc', other.message())
        self.assertEqual(before, self.kubectl.get('configmap',
                                                  'other-virtbmc'))
        self.kubectl('delete', 'configmap', 'other-virtbmc')
        other.ready()
        self.kubectl('delete', 'vmbmc', 'other')
        self.until('gone', lambda: self.owned('other'), [])
