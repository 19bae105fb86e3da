# SPDX-License-Identifier: Apache-2.0
"""The operator restores objects of a BMC that users delete, edit or stop."""

import base64
import json
import os
import signal

from kubevirt_sandbox.testing import process
from tests.fixtures import operator
from tests.fixtures import processes

# Metadata that the cluster sets.
SET_BY_CLUSTER = ('annotations', 'creationTimestamp', 'generation',
                  'managedFields', 'resourceVersion', 'uid')


def desired(obj):
    """Return an object without status and metadata of the cluster."""
    obj = dict(obj, metadata={
        key: value for key, value in obj['metadata'].items()
        if key not in SET_BY_CLUSTER})
    obj.pop('status', None)
    return obj


class RepairTestCase(operator.OperatorTestCase):

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
        """Return {name: object} of all objects of the BMC."""
        return {name: desired(self.kubectl.get(name)) for name in self.mine}

    def is_replaced(self, name, uid):
        """Return whether another object of that name exists."""
        try:
            return self.kubectl.get(name)['metadata']['uid'] != uid
        except AssertionError:
            return False

    def assert_works(self):
        """Check that the BMC is ready and serves both protocols."""
        self.box.ready()
        self.until('power', self.box.works, 'Off')
        self.assert_no_warnings(self.mark)

    def test_deleted_objects_are_restored(self):
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
                       self.is_replaced(name, uid))
            after = desired(self.kubectl.get(name))
            if name.startswith('secret/'):
                # Password or certificate are new.
                self.assertEqual(before['data'].keys(), after['data'].keys())
            elif name.startswith('service/'):
                # It has another address and possibly another node port.
                self.assertEqual(before['spec']['selector'],
                                 after['spec']['selector'])
            else:
                self.assertEqual(desired(before), after)
        self.read_password()
        self.assert_works()

    def test_all_objects_deleted_at_once(self):
        self.kubectl('delete', operator.OWNED, '-l',
                     operator.LABEL + self.box.name, '--wait=false')
        self.until('all objects', lambda: [
            one for one in self.mine if one not in self.owned()], [])
        self.read_password()
        self.assert_works()

    def test_edited_objects_are_restored(self):
        base = self.box.base
        before = self.snapshot()
        nothing = {'operator': None}
        for name, *words in (
                ('deployment', 'scale', 'deployment/' + base, '--replicas=0'),
                ('deployment', 'scale', 'deployment/' + base, '--replicas=3'),
                ('deployment', 'set', 'image', 'deployment/' + base,
                 'bmc=evil.example.test/other:1'),
                ('deployment', 'set', 'env', 'deployment/' + base,
                 'VIRTBMC_VM=other/vm', '-c', 'bmc'),
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
                ('configmap', 'patch', {'data': {'options.json': '{}'}}),
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
            self.until(' '.join((name, verb, *words)),
                       lambda what=what: desired(self.kubectl.get(what)),
                       before[what])
        self.assert_works()
        self.assertEqual(before, self.snapshot())

    def test_removed_labels_are_restored(self):
        """Without its label, an object is still that of its BMC."""
        before = self.snapshot()
        for name in self.mine:
            if name.startswith('secret/'):
                continue
            for label in 'app.kubernetes.io/managed-by', operator.LABEL[:-1]:
                self.kubectl('label', name, label + '-')
                self.until(name, lambda name=name: desired(
                    self.kubectl.get(name)), before[name])
            self.kubectl('label', name, '--overwrite',
                         'app.kubernetes.io/managed-by=Helm')
            self.until(name, lambda name=name: desired(
                self.kubectl.get(name)), before[name])
        for name, key in (('-auth', 'password'), ('-tls', 'tls.crt')):
            self.kubectl(
                'patch', 'secret', self.box.base + name, '--type=merge', '-p',
                json.dumps({
                    'metadata': {'labels': {
                        'app.kubernetes.io/managed-by': None}},
                    'data': {key: ''}}))
            what = 'secret/' + self.box.base + name
            self.until(what, lambda what=what, key=key: bool(
                self.kubectl.get(what)['data'][key]))
            self.assertEqual(
                before[what]['metadata'], desired(self.kubectl.get(what))[
                    'metadata'])
        self.read_password()
        self.assert_works()

    def test_replaced_selectors_are_restored(self):
        """Others would lead clients to other pods, or shut them out."""
        before = self.snapshot()
        for kind, path, value in (
                ('service', 'selector', {'app': 'other'}),
                ('networkpolicy', 'podSelector', {}),
                ('networkpolicy', 'podSelector', {
                    'matchLabels': {'app': 'other'}})):
            what = next(name for name in self.mine if name.startswith(kind))
            self.kubectl('patch', what, '--type=json', '-p', json.dumps([{
                'op': 'replace', 'path': '/spec/' + path, 'value': value}]))
            self.until(what, lambda what=what: desired(
                self.kubectl.get(what)), before[what])
        self.assert_works()

    def test_foreign_role_binding(self):
        """A RoleBinding whose role cannot be changed is replaced."""
        name = 'rolebinding/' + self.box.base
        before = self.kubectl.get(name)
        self.kubectl('delete', name, '--wait=false')
        self.kubectl.run('create', 'rolebinding', self.box.base,
                         '--role=other', '--user=mallory')
        # Either the operator or mallory created it first.
        self.until('settled', lambda: bool(self.kubectl.run(
            'get', name).returncode == 0))
        found = self.kubectl.get(name)
        if found['roleRef']['name'] == 'other':
            self.until('reason', lambda: self.box.condition(),
                       ('False', 'NameTaken'))
            self.assertIn('RoleBinding ' + self.box.base, self.box.message())
            self.kubectl('delete', name)
        self.until('binding', lambda: desired(self.kubectl.get(name)),
                   desired(before))
        self.assert_works()

    def test_fields_of_others_stay(self):
        """Only managed fields are restored; a manual restart is possible."""
        deployment = 'deployment/' + self.box.base
        self.kubectl('annotate', 'service', self.box.base, 'mine=yes')
        self.kubectl('label', deployment, 'team=blue')
        old = self.box.processes()
        self.kubectl('rollout', 'restart', deployment)
        self.kubectl('rollout', 'status', deployment, '--timeout=60s')
        self.until('pod', lambda: bool(
            set(old) & set(self.box.processes())), False)
        self.assert_works()
        self.assertEqual('yes', self.kubectl.get('service', self.box.base)[
            'metadata']['annotations']['mine'])
        self.assertEqual('blue', self.kubectl.get(deployment)['metadata'][
            'labels']['team'])

    def test_deleted_pod_is_replaced(self):
        self.kubectl('delete', 'pods', '-l',
                     operator.LABEL + self.box.name)
        self.assert_works()

    def test_killed_process_is_restarted(self):
        pod = self.kubectl.get('pods', '-l', operator.LABEL + self.box.name)[
            'items'][0]['metadata']
        pid, = (set(process.running('sushy-kubevirt-bmc'))
                & set(processes.with_environment(pod['uid'])))
        os.kill(pid, signal.SIGKILL)
        self.until('restarts', lambda: [one[2] for one in
                                        self.box.processes()], [1])
        self.assert_works()

    def test_removed_password_is_generated_again(self):
        old = self.box.password
        self.kubectl('patch', 'secret', self.box.base + '-auth',
                     '--type=merge', '-p', '{"data":{"password":null}}')
        self.until('a password', lambda: 'password' in self.kubectl.get(
            'secret', self.box.base + '-auth')['data'])
        self.read_password()
        self.assertNotEqual(old, self.box.password)
        self.until('power', lambda: self.box.curl().code, 200)
        self.assert_works()

    def test_foreign_objects_stay(self):
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
