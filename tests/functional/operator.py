# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-operator`` and the BMCs that it makes, as fixtures.

The manifests are those that users apply; the operator runs beside the
sandbox with the rights of its account, and the pods of BMCs are processes
that the sandbox starts.
"""

import dataclasses
import json
import os
import pathlib
import secrets
import subprocess
import tempfile
import time
import unittest

import fixtures
import yaml

from kubevirt_sandbox.testing import kubectl
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from tests.functional import base
from tests.functional import checkout
from tests.functional import sandbox
from tests.functional import vbmcd

MANIFESTS = checkout.ROOT / 'etc' / 'kubernetes'
NAMESPACE = 'sushy-kubevirt-system'
NAME = 'sushy-kubevirt-operator'
USER = f'system:serviceaccount:{NAMESPACE}:{NAME}'

#: All kinds of objects that a BMC has in its namespace.
OWNED = ('deployments,replicasets,pods,services,serviceaccounts,roles,'
         'rolebindings,configmaps,secrets,networkpolicies')


def manifests(admin, folder=MANIFESTS):
    """What ``kubectl apply -k`` would apply.

    :param admin: a :class:`kubectl.Kubectl`.
    :param folder: with a kustomization.
    :returns: list of dictionaries.
    """
    return list(yaml.safe_load_all(admin('kustomize', folder)))


def install(admin, folder=MANIFESTS, replicas=0):
    """Install the operator, as a user would.

    :param admin: a :class:`kubectl.Kubectl`.
    :param folder: with a kustomization.
    :param replicas: of its Deployment; none when a test runs it.
    """
    objects = manifests(admin, folder)
    for one in objects:
        if one['kind'] == 'Deployment':
            one['spec']['replicas'] = replicas
    # A kind has to be known before what is of it.
    objects.sort(key=lambda one: one['kind'] != 'CustomResourceDefinition')
    admin.apply(*objects)
    admin.wait('crd/virtualmachinebmcs.bmc.kubevirt.io',
               'condition=Established')


class Operator(fixtures.Fixture):
    """A running operator.

    :param kubeconfig: path, of its account.
    :param arguments: further words for its command line.
    :param wait: whether to wait until it leads and knows what there is.
    """

    def __init__(self, kubeconfig, arguments=(), wait=True):
        super().__init__()
        self.kubeconfig = kubeconfig
        self.arguments = tuple(arguments)
        self.wait = wait
        # On a port that nobody else has.
        self.command = (NAME, '--kubeconfig', str(kubeconfig),
                        '--metrics-address', '127.0.0.1:0')

    def _setUp(self):
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.process = self.useFixture(process.Process(
            [*self.command, *self.arguments],
            ready=READY if self.wait else None, timeout=60,
            env=process.environment(self.home)))

    def lines(self, mark=0):
        """What it logged, as dictionaries."""
        found = []
        for line in self.process.since(mark).splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({'level': 'none', 'message': line})
        return found

    def complaints(self, mark=0):
        """Lines of warnings and worse, and what is no line of a log."""
        return [line for line in self.lines(mark)
                if line.get('level', '').lower() not in ('info', 'debug')]


#: What it logs when it leads and knows what there is.
READY = r'"message": "ready"'


@dataclasses.dataclass
class Answer:
    """What ``curl -i`` shows of an answer.

    :param code: of HTTP.
    :param headers: dictionary, names in lower case.
    :param text: the body.
    """

    code: int
    headers: dict
    text: str

    def json(self):
        return json.loads(self.text)


def curl(url, *words, config=''):
    """Run ``curl -i``.

    :param words: further words of its command line.
    :param config: lines of a config file, for what no list of processes
        should show.
    :returns: :class:`Answer`
    :raises AssertionError: it got no answer.
    """
    done = subprocess.run(
        ['curl', '-s', '-S', '-i', '--max-time', '60', '--noproxy', '*',
         '--config', '-', *map(str, words), url], input=config,
        env=process.environment('/nonexistent'), capture_output=True,
        text=True, timeout=90)
    if done.returncode != 0:
        raise AssertionError('curl %s: exit code %d: %s' % (
            url, done.returncode, done.stderr))
    text = done.stdout
    while True:
        head, _, text = text.partition('\n\n')
        status, *lines = head.splitlines()
        code = int(status.split()[1])
        # With -L each answer is there.
        if not 300 <= code < 400 or not text.startswith('HTTP/'):
            break
    headers = {name.lower(): value.strip() for name, _, value in (
        line.partition(':') for line in lines)}
    return Answer(code, headers, text)


class Bmc:
    """One BMC, as those see it who have its status.

    :param kubectl: of its namespace.
    :param name: of it.
    :param username: of its Secret.
    :param password: of its Secret.
    """

    def __init__(self, kubectl, name, username, password):
        self.kubectl = kubectl
        self.name = name
        self.username = username
        self.password = password

    @property
    def resource(self):
        return self.kubectl.get('vmbmc', self.name)

    @property
    def status(self):
        return self.resource.get('status') or {}

    def condition(self, type_='Ready'):
        """(status, reason) of a condition; None if it is not there."""
        return next(((one['status'], one['reason'])
                     for one in self.status.get('conditions') or ()
                     if one['type'] == type_), None)

    def message(self, type_='Ready'):
        return next(one['message'] for one in self.status['conditions']
                    if one['type'] == type_)

    def ready(self, seconds=60):
        """Wait until it is.

        :raises AssertionError: it is not; with its conditions and what its
            pods say.
        """
        try:
            self.kubectl.wait('vmbmc/' + self.name, 'condition=Ready',
                              seconds)
        except AssertionError as exc:
            raise AssertionError('%s\n%s\n%s\n%s' % (
                exc, json.dumps(self.status, indent=1),
                self.kubectl.run('describe', 'pods').stdout[-3000:],
                self.kubectl.run('logs', '--all-containers', '--tail=20',
                                 '-l', LABEL + self.name).stdout)) from None
        return self

    def current(self, seconds=60):
        """Wait until it is ready as it is now."""
        wanted = self.resource['metadata']['generation']
        self.kubectl.wait('vmbmc/' + self.name, 'jsonpath='
                          '{.status.observedGeneration}=%d' % wanted,
                          seconds)
        return self.ready(seconds)

    def patch(self, **spec):
        """Change its spec; None takes a member away."""
        self.kubectl('patch', 'vmbmc', self.name, '--type=merge', '-p',
                     json.dumps({'spec': spec}))

    @property
    def base(self):
        return self.name + '-virtbmc'

    # Clients

    def trust(self):
        """A file with the certificate of the CA that the status names."""
        told = self.status['endpoints']['redfish']['certificateAuthority']
        text = self.kubectl.get('configmap', told['configMap'])['data'][
            told['key']]
        if not hasattr(self, '_ca') or self._ca.read_text() != text:
            handle, name = tempfile.mkstemp(
                dir=self.kubectl.kubeconfig.parent)
            os.close(handle)
            self._ca = pathlib.Path(name)
            self._ca.write_text(text)
        return self._ca

    def url(self, path=None):
        """The URL of its system, or of another path."""
        system = self.status['endpoints']['redfish']['url']
        if path is None:
            return system
        return system.partition('/redfish/')[0] + path

    def curl(self, path=None, *words, password=None, ca=None):
        """Ask Redfish, with user name and password.

        :param path: from the root; the status's own URL when None.
        :param ca: file; that of the status when None.
        """
        url = self.url(path)
        config = 'user = "%s:%s"\n' % (
            self.username, self.password if password is None else password)
        if url.startswith('https:'):
            config += 'cacert = "%s"\n' % (ca or self.trust())
        return curl(url, *words, config=config)

    def power(self, **more):
        """The power state that Redfish tells."""
        answer = self.curl(**more)
        if answer.code != 200:
            raise AssertionError('%d: %s' % (answer.code, answer.text[:500]))
        return answer.json()['PowerState']

    def ipmitool(self, *words, host=None, port=None, **more):
        """Run ``ipmitool -I lanplus`` at the status's address.

        :returns: :class:`subprocess.CompletedProcess`, with text.
        """
        told = self.status['endpoints']['ipmi']
        at = vbmcd.Bmc(self.name, self.username, self.password,
                       port or told['port'])
        at.address = host or told['host']
        return vbmcd.ipmitool(at, *words, **more)

    def ipmi(self, *words, **more):
        """What ``ipmitool`` prints; it must succeed."""
        done = self.ipmitool(*words, **more)
        if done.returncode != 0:
            raise AssertionError('ipmitool %s: exit code %d: %s' % (
                ' '.join(words), done.returncode, done.stdout))
        return done.stdout.strip()

    def works(self):
        """Have both protocols say the power state.

        :returns: it, as Redfish says it.
        """
        state = self.power()
        said = self.ipmi('power', 'status')
        if said != 'Chassis Power is ' + state.lower():
            raise AssertionError(f'Redfish says {state}, but IPMI: {said}')
        return state

    def processes(self):
        """Process ids of its pod's containers, as the sandbox knows them."""
        pods = self.kubectl.get('pods', '-l', LABEL + self.name)['items']
        return sorted(
            (one['name'], one['containerID'], one['restartCount'])
            for pod in pods
            for one in pod['status'].get('containerStatuses') or ())


#: Label of all objects of a BMC, for selectors.
LABEL = 'kubevirt.io/virtualmachinebmc-name='


def bmc_manifest(name, vm=None, secret=None, **spec):
    """A VirtualMachineBMC.

    :param vm: name of the VM; the BMC's when None.
    :param secret: name of the Secret; None for one that the operator makes.
    """
    spec.setdefault('virtualMachineRef', {'name': vm or name})
    spec = {key: value for key, value in spec.items() if value is not None}
    if secret:
        spec['authSecretRef'] = {'name': secret}
    return {'apiVersion': 'bmc.kubevirt.io/v1beta1',
            'kind': 'VirtualMachineBMC', 'metadata': {'name': name},
            'spec': spec}


def secret_manifest(name, username='admin', password='password'):
    return {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': name},
            'stringData': {'username': username, 'password': password}}


@unittest.skipUnless(kubectl.KUBECTL, 'kubectl is not installed')
class OperatorTestCase(base.FunctionalTestCase):
    """A sandbox with the operator; each test has a namespace of its own.

    :cvar SANDBOX: further words for the sandbox.
    :cvar ARGUMENTS: further words for the operator.
    :cvar RUNS: whether the class starts an operator.
    :cvar FOLDER: the kustomization that is installed.
    """

    FOLDER = MANIFESTS
    SANDBOX = ()
    ARGUMENTS = ()
    RUNS = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.passwords = set()
        cls.sandbox = cls.share(sandbox.Sandbox(vms=0, arguments=cls.SANDBOX))
        cls.admin = kubectl.Kubectl(cls.sandbox.kubeconfig)
        cls.install()
        cls.account = cls.sandbox.account(NAME, NAMESPACE)
        cls.operator = None
        if cls.RUNS:
            cls.operator = cls.share(Operator(cls.account, cls.arguments()))

    @classmethod
    def arguments(cls):
        """What the operator is told; there is a sandbox already."""
        return cls.ARGUMENTS

    @classmethod
    def install(cls):
        """Install what is to be there before an operator runs."""
        install(cls.admin, cls.FOLDER)

    def setUp(self):
        super().setUp()
        self.namespace = self.new_namespace()
        self.kubectl = self.admin.within(self.namespace)
        self.addCleanup(self.sandbox.clear_faults)

    def new_namespace(self):
        name = 'n-' + os.urandom(4).hex()
        self.admin('create', 'namespace', name)
        self.addCleanup(self.admin, 'delete', 'namespace', name,
                        '--wait=false', '--ignore-not-found')
        return name

    def vm(self, name='box', run_strategy='Halted', namespace=None, **more):
        """Make a VM; returns it."""
        namespace = namespace or self.namespace
        return self.sandbox.create('virtualmachines', machines.vm(
            name, run_strategy, namespace, **more), namespace)

    def secret(self, name='box-bmc', username='admin', namespace=None):
        """Make a Secret, or change its password; returns that."""
        password = secrets.token_hex(8)
        self.passwords.add(password)
        self.admin.within(namespace or self.namespace).apply(
            secret_manifest(name, username, password))
        return password

    def bmc(self, name='box', vm='box', secret='box-bmc', **spec):
        """Make a BMC, and its VM and Secret if they are not there.

        :param secret: None for one that the operator makes.
        :returns: :class:`Bmc`, which need not be ready.
        """
        if self.sandbox.vm(vm, self.namespace) is None:
            self.vm(vm)
        password = self.secret(secret) if secret else None
        self.kubectl.apply(bmc_manifest(name, vm, secret, **spec))
        return Bmc(self.kubectl, name, 'admin', password)

    def until(self, what, look, expected=True, seconds=30):
        """Look again and again until something is so.

        :param what: a word for it.
        :param look: function. It may fail for a while: what is looked at need
            not be there yet, or not answer.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                if (found := look()) == expected:
                    return found
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            else:
                if time.monotonic() > deadline:
                    self.assertEqual(expected, found, what)
            time.sleep(0.05)

    def owned(self, name=None):
        """What BMCs, or one, have in this namespace: ``kind/name``.

        What is remembered of a VM is the VM's, and no part of it.
        """
        selector = ('-l', LABEL + name) if name else (
            '-l', 'app.kubernetes.io/managed-by=' + NAME)
        return [one for one in self.kubectl.names(OWNED, *selector)
                if not one.endswith('-bmc-state')]

    def quiet(self, mark=0, pods=False):
        """The operator complained of nothing, told no password, and was
        refused nothing.

        :param mark: of its output, to begin at.
        :param pods: whether the pods of this namespace were not, either.
        """
        self.assertEqual([], self.operator.complaints(mark))
        refused = self.sandbox.stats()['refused']
        self.assertNotIn(USER, refused)
        if pods:
            # Those of other namespaces may be on their way out.
            self.assertEqual([], [
                (user, what) for user, what in refused.items()
                if f':{self.namespace}:' in user])
        output = self.operator.process.output
        for password in self.passwords:
            self.assertNotIn(password, output)
