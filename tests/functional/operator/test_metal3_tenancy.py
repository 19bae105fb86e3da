# SPDX-License-Identifier: Apache-2.0
"""Tenants with HostClaims reach no host, BMC, Secret or VM of their hosts."""

import base64
import json
import pathlib
import subprocess

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import process
from tests.fixtures import access_case
from tests.fixtures import checkout
from tests.fixtures import operator
from tests.fixtures import terminal

DEFINITIONS = checkout.ROOT / 'tests/fixtures/metal3/definitions.yaml'
SAMPLES = operator.MANIFESTS / 'samples/metal3-tenancy'
HOSTS, TENANTS = 'bare-metal', ('tenant-a', 'tenant-b')
MAC = '52:54:00:00:00:0a'
WRITE = ('get', 'list', 'watch', 'create', 'update', 'patch', 'delete')

#: Kinds in the namespace of hosts, and the names of one's objects.
KINDS = {
    'secret': ('n0-virtbmc-auth', 'n0-virtbmc-host', 'n0-virtbmc-tls'),
    'baremetalhost': ('n0',), 'virtualmachinebmc': ('n0',),
    'virtualmachine': ('n0',), 'virtualmachineinstance': ('n0',),
    'service': ('n0-virtbmc',), 'pod': (), 'configmap': ('n0-virtbmc',),
    'deployment': ('n0-virtbmc',), 'hostdeploypolicy': ('tenants',),
    'serviceaccount': ('n0-virtbmc',), 'role': ('n0-virtbmc',),
    'hardwaredata': ('n0',), 'hostclaim': (), 'event': ()}

#: URLs that reach a VM or its BMC without changing an object.
_SUB = f'/apis/subresources.kubevirt.io/v1/namespaces/{HOSTS}/'
URLS = (
    _SUB + 'virtualmachineinstances/n0/console',
    _SUB + 'virtualmachineinstances/n0/vnc',
    f'/api/v1/namespaces/{HOSTS}/services/https:n0-virtbmc:443/proxy/',
    f'/api/v1/namespaces/{HOSTS}/pods/n0-virtbmc/log')


def claim(name, **spec):
    return {'apiVersion': 'metal3.io/v1alpha1', 'kind': 'HostClaim',
            'metadata': {'name': name}, 'spec': {'poweredOn': True, **spec}}


class Member(kubectl.Kubectl):
    """``kubectl`` of a user, whose group an identity provider tells."""

    def __init__(self, kubeconfig, group, namespace=None):
        super().__init__(kubeconfig, namespace)
        self.group = group

    def within(self, namespace):
        return Member(self.kubeconfig, self.group, namespace)

    def run(self, *words, **more):
        return super().run('--as', 'alice', '--as-group', self.group, *words,
                           **more)


@operator.other_platforms
@given_cluster.needs_sandbox('namespaces with the names of the sample')
class TenancyTestCase(access_case.AccessTestCase):

    FOLDER = operator.MANIFESTS / 'overlays' / 'bare-metal-hosts'
    ARGUMENTS = ('--bare-metal-hosts', 'metal3=true')
    SANDBOX = operator.PRETENDED_PODS

    def setUp(self):
        super().setUp()
        self.admin('apply', '-f', DEFINITIONS)
        for name in (HOSTS, *TENANTS):
            self.addCleanup(self.delete_namespace, name)
        self.admin('apply', '-k', SAMPLES)
        self.hosts = self.admin.within(HOSTS)

    def delete_namespace(self, name):
        self.admin('delete', 'namespace', name)

    def host(self):
        """Have a VM, its BMC and its host in the namespace of hosts."""
        self.namespace, self.kubectl = HOSTS, self.hosts
        self.vm('n0')
        self.hosts('patch', 'vm', 'n0', '--type=merge', '-p', json.dumps({
            'spec': {'template': {'spec': {'domain': {'devices': {
                'interfaces': [{'name': 'default', 'masquerade': {},
                                'macAddress': MAC}]}}}}}}))
        self.bmc('n0', 'n0', None)
        self.hosts('label', 'vmbmc', 'n0', 'metal3=true')
        self.until('host', lambda: self.hosts.names('bmh'),
                   ['baremetalhost.metal3.io/n0'])
        self.hosts.apply({
            'apiVersion': 'metal3.io/v1alpha1', 'kind': 'HardwareData',
            'metadata': {'name': 'n0'}, 'spec': {}})

    def assert_denied(self, user, *words, **more):
        said = user.refused(*words, **more)
        self.assertIn('orbidden', said, words)

    def assert_no_access(self, user, but=()):
        """Every request about hosts is refused.

        :param but: (verb, kind) of what is allowed
        """
        for kind, names in KINDS.items():
            if ('list', kind) not in but:
                self.assert_denied(user, '-n', HOSTS, 'get', kind)
            for name in names:
                if ('get', kind) not in but:
                    self.assert_denied(user, '-n', HOSTS, 'get', kind, name)
                self.assert_denied(user, '-n', HOSTS, 'delete', kind, name)
                self.assert_denied(
                    user, '-n', HOSTS, 'patch', kind, name, '--type=merge',
                    '-p', '{"metadata": {"labels": {"x": "y"}}}')
        for url in URLS:
            self.assert_denied(user, 'get', '--raw', url)
        for action in 'start', 'stop', 'restart':
            self.assert_denied(
                user, 'replace', '--raw',
                f'{_SUB}virtualmachines/n0/{action}', '-f', '-', stdin='{}')
        for kind in 'namespace', 'node':
            self.assert_denied(user, 'get', kind)
        self.assert_denied(user, 'label', 'namespace', HOSTS,
                           'host-claims=allowed')

    def create(self, user, body):
        return user.run('create', '--validate=false', '-f', '-',
                        stdin=json.dumps(body))

    def check_claims(self, user, namespace):
        """The user holds claims, and Secrets with user data, of one."""
        self.assertEqual(0, self.create(user, claim('c0')).returncode)
        user('create', 'secret', 'generic', 'user-data',
             '--from-literal=userData=x')
        self.assertEqual('x', base64.b64decode(
            user.get('secret', 'user-data')['data']['userData']).decode())
        user('patch', 'hostclaim', 'c0', '--type=merge', '-p',
             '{"spec": {"poweredOn": false}}')
        self.assertIs(False, user.get('hostclaim', 'c0')['spec']['poweredOn'])
        # The status belongs to baremetal-operator.
        self.assert_denied(
            user, 'patch', 'hostclaim', 'c0', '--subresource=status',
            '--type=merge', '-p',
            '{"status": {"bareMetalHost": {"name": "n0"}}}')
        # No hosts, BMCs or policies of its own, which would need BMCs.
        for body in (
                {'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
                 'spec': {'online': True}},
                {'apiVersion': 'metal3.io/v1alpha1',
                 'kind': 'HostDeployPolicy', 'spec': {}},
                operator.bmc_manifest('mine', 'n0')):
            body['metadata'] = {'name': 'mine'}
            done = self.create(user, body)
            self.assertIn('forbidden', done.stderr)
        for other in {*TENANTS} - {namespace}:
            for kind in 'hostclaim', 'secret':
                self.assert_denied(user, '-n', other, 'get', kind)
            self.assert_denied(user.within(other), 'create', 'secret',
                               'generic', 'x')
            self.assertIn('forbidden', self.create(
                user.within(other), claim('c1')).stderr)
        user('delete', 'hostclaim/c0', 'secret/user-data')

    def test_tenants(self):
        self.host()
        expected = {
            **{(verb, 'hostclaims.metal3.io'): set() for verb in WRITE},
            **{(verb, 'secrets'): set() for verb in WRITE},
            ('get', 'hostclaims.metal3.io/status'): set(),
            **{(verb, 'events'): set() for verb in ('get', 'list', 'watch')}}
        for namespace in TENANTS:
            member = self.member(namespace, namespace)
            for user in self.user('tenant', namespace), member:
                self.assertEqual(expected, self.can(user, namespace))
                self.assertEqual({}, self.can(user, HOSTS))
                self.check_claims(user, namespace)
        self.assert_no_access(user)
        self.assertEqual({}, self.can(self.member('others'), TENANTS[0]))

    def member(self, group, namespace=None):
        return Member(self.admin.kubeconfig, group, namespace)

    def test_quota_of_claims(self):
        user = self.user('tenant', TENANTS[0])
        for number in range(10):
            self.assertEqual(0, self.create(
                user, claim(f'c{number}')).returncode)
        self.assertIn('exceeded quota', self.create(
            user, claim('more')).stderr)

    def test_infrastructure(self):
        self.host()
        for user in (self.user('infrastructure', HOSTS),
                     self.member('infrastructure', HOSTS)):
            self.assertIn('password', user.get(
                'secret', 'n0-virtbmc-auth')['data'])
            for kind in 'bmh', 'vmbmc', 'vm':
                user('annotate', kind, 'n0', f'note={id(user)}',
                     '--overwrite')
            user('get', 'hostdeploypolicy', 'tenants')
            for namespace in TENANTS:
                for kind in 'secret', 'hostclaim':
                    self.assert_denied(user, '-n', namespace, 'get', kind)

    # claim-kubeconfig

    def run_command(self, *words, expected=0, **environ):
        done = subprocess.run(
            [process.BIN / operator.NAME, 'claim-kubeconfig', '--kubeconfig',
             self.sandbox.kubeconfig, *words], capture_output=True, text=True,
            env=process.environment(process.NO_HOME, environ), timeout=60)
        self.assertEqual(expected, done.returncode, done.stderr)
        return done

    def server(self):
        return self.admin('config', 'view', '--minify', '-o',
                          'jsonpath={.clusters[0].cluster.server}')

    def account_of(self, secret):
        """:returns: a kubectl of the account of a Secret"""
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        texts = {base64.b64decode(one).decode()
                 for one in secret['data'].values()}
        self.assertEqual(1, len(texts))
        path = folder / 'kubeconfig'
        path.write_text(texts.pop())
        return kubectl.Kubectl(path)

    def test_account_for_claims(self):
        self.host()
        words = (TENANTS[0], '--server', self.server(), '--hosts-namespace',
                 HOSTS, '--secret-namespace', 'clusters')
        done = self.run_command(*words)
        secret = json.loads(done.stdout)
        self.assertEqual(('clusters', 'hostclaims'), (
            secret['metadata']['namespace'], secret['metadata']['name']))
        self.assertEqual({'kubeconfig', 'value'}, set(secret['data']))
        user = self.account_of(secret)
        token = json.loads(base64.b64decode(secret['data']['value']))[
            'users'][0]['user']['token']
        self.assertNotIn(token, done.stderr)
        self.assertIn(secret['metadata']['annotations'][
            'bmc.kubevirt.io/expires'], done.stderr)
        self.assertEqual({
            **{(verb, 'hostclaims.metal3.io'): set() for verb in WRITE},
            **{(verb, 'secrets'): set() for verb in WRITE},
            ('get', 'hostclaims.metal3.io/status'): set()},
            self.can(user, TENANTS[0]))
        self.check_claims(user, TENANTS[0])
        self.assert_no_access(user, but={('get', 'hardwaredata'),
                                         ('list', 'hardwaredata')})
        self.assertIn('n0', user('-n', HOSTS, 'get', 'hardwaredata'))
        # Again, into a cluster, with another token; then revoked.
        self.admin('create', 'namespace', 'clusters')
        self.addCleanup(self.delete_namespace, 'clusters')
        for _ in range(2):
            done = self.run_command(
                *words, '--to-kubeconfig', self.sandbox.kubeconfig)
            self.assertEqual('', done.stdout)
        second = self.account_of(self.admin.within('clusters').get(
            'secret', 'hostclaims'))
        for one in user, second:
            one('get', 'hostclaims')
        self.admin('-n', TENANTS[0], 'delete', 'serviceaccount', 'hostclaims')
        for one in user, second:
            self.assertIn('nauthorized', one.refused('get', 'hostclaims'))

    def test_refused_accounts(self):
        """Foreign objects, addresses of this host, rights that one lacks."""
        self.assertIn('--server', self.run_command(
            TENANTS[0], expected=1).stderr)
        words = TENANTS[0], '--server', self.server()
        self.useFixture(terminal.Terminal(
            [process.BIN / operator.NAME, 'claim-kubeconfig', '--kubeconfig',
             self.sandbox.kubeconfig, *words], process.environment(
                 process.NO_HOME))).wait(b'not printed to a terminal')
        within = self.admin.within(TENANTS[0])
        within('create', 'role', 'hostclaims', '--verb=get',
               '--resource=pods')
        before = within.get('role', 'hostclaims')
        self.assertIn('choose another --name', self.run_command(
            *words, expected=1).stderr)
        self.assertEqual(before, within.get('role', 'hostclaims'))
        tenant = self.sandbox.account('tenant', TENANTS[0])
        self.assertIn('forbidden', self.run_command(
            *words, '--kubeconfig', tenant, '--name', 'mine',
            expected=1).stderr)
