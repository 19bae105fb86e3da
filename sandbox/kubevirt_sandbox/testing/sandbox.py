# SPDX-License-Identifier: Apache-2.0
"""Fixture that runs ``kubevirt-sandbox``, with an administrator's client.

Methods access objects through the Kubernetes API, and guests, faults and call
statistics through the sandbox's control interface, ``/sandbox``.
"""

import base64
import json
import os
import pathlib
import shlex
import time

import fixtures
import requests
import yaml

from kubevirt_sandbox.testing import polling
from kubevirt_sandbox.testing import process

#: Namespace of the tests' objects; see `given_cluster`.
NAMESPACE = os.environ.get('KUBEVIRT_NAMESPACE') or 'default'

#: Additional command line arguments of every sandbox.
ARGUMENTS = shlex.split(os.environ.get('KUBEVIRT_SANDBOX_ARGUMENTS', ''))

#: Field manager of what tests apply.
MANAGER = 'tests'

JSON_PATCH = 'application/json-patch+json'
MERGE_PATCH = 'application/merge-patch+json'

GROUPS = {
    'virtualmachines': 'apis/kubevirt.io/v1',
    'virtualmachineinstances': 'apis/kubevirt.io/v1',
    'kubevirts': 'apis/kubevirt.io/v1',
    'datavolumes': 'apis/cdi.kubevirt.io/v1beta1',
    'leases': 'apis/coordination.k8s.io/v1',
    'network-attachment-definitions': 'apis/k8s.cni.cncf.io/v1',
    'virtualmachineclusterinstancetypes':
        'apis/instancetype.kubevirt.io/v1beta1',
    'virtualmachineinstancetypes': 'apis/instancetype.kubevirt.io/v1beta1',
    'virtualmachinepreferences': 'apis/instancetype.kubevirt.io/v1beta1',
    'virtualmachineclusterpreferences':
        'apis/instancetype.kubevirt.io/v1beta1',
    **dict.fromkeys(
        ('roles', 'rolebindings', 'clusterroles', 'clusterrolebindings'),
        'apis/rbac.authorization.k8s.io/v1'),
    **dict.fromkeys(
        ('validatingadmissionpolicies', 'validatingadmissionpolicybindings'),
        'apis/admissionregistration.k8s.io/v1'),
}


def path(plural, name=None, namespace=NAMESPACE):
    """Return the API path of a collection or an object.

    :param plural: ``virtualmachines``, ``configmaps``, …; resources that are
        not in ``GROUPS`` belong to Kubernetes' core API.
    :param name: name of the object, or None for the collection.
    :param namespace: None for cluster-scoped resources.
    """
    parts = [GROUPS.get(plural, 'api/v1')]
    if namespace:
        parts += ['namespaces', namespace]
    parts.append(plural)
    if name:
        parts.append(name)
    return '/' + '/'.join(parts)


class Sandbox(fixtures.Fixture):
    """A running ``kubevirt-sandbox``.

    :param vms: number of sample VMs.
    :param boot_seconds: how long a guest takes to boot, in seconds.
    :param arguments: further command line arguments.
    :param port: port to listen on; 0 chooses a free one.
    :param log: path of a file that gets its output.
    :param command: words of the command, e.g. of another version.

    ``url``, ``token`` and ``ca`` (path of the CA's file) are the
    administrator's credentials; ``kubeconfig`` is the path of the kubeconfig
    with all three.
    """

    #: Whether it is not a sandbox: see `given_cluster`.
    external = False

    def __init__(self, vms=2, boot_seconds=0.2, arguments=(), port=0,
                 log=None, command=('kubevirt-sandbox',)):
        super().__init__()
        self.command = command
        self.vms = vms
        self.boot_seconds = boot_seconds
        self.arguments = tuple(arguments)
        self.port = port
        self.log = log

    def _setUp(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        # Pods of `--openshift` have other users; they cannot list it.
        home.chmod(0o711)
        self.kubeconfig = home / 'kubeconfig'
        self.process = self.useFixture(process.Process(
            [*self.command, '--listen', f'127.0.0.1:{self.port}',
             '--kubeconfig', self.kubeconfig, '--vms', self.vms,
             '--boot-seconds', self.boot_seconds, *self.arguments, *ARGUMENTS],
            ready=r'^ready (https://\S+)', timeout=120 + self.vms / 20,
            # A killed sandbox leaves its temporary files behind; TMPDIR puts
            # them in a folder that the fixture deletes. aiohttp would read
            # all CAs of the system when it is imported, for 0.1 s.
            env=process.environment(home, {
                'TMPDIR': home, 'SSL_CERT_FILE': os.devnull}),
            log=self.log))
        self.url = self.process.match[1].rstrip('/')
        config = yaml.safe_load(self.kubeconfig.read_text())
        self.token = config['users'][0]['user']['token']
        cluster = config['clusters'][0]['cluster']
        self.ca = home / 'ca.crt'
        self.ca.write_bytes(
            base64.b64decode(cluster['certificate-authority-data']))
        self._open_session(str(self.ca))

    def _open_session(self, verify):
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = verify
        self._session.headers['Authorization'] = 'Bearer ' + self.token
        self.addCleanup(self._session.close)

    # The API

    def request(self, method, where, body=None, *, content_type=None,
                expect=None, **options):
        """Send one HTTP request.

        :param method: HTTP method.
        :param where: absolute path with query.
        :param body: sent as JSON.
        :param content_type: type of the body; ``application/json`` when
            None.
        :param expect: expected HTTP status code; any when None.
        :returns: :class:`requests.Response`
        :raises AssertionError: the response has another status code.
        """
        if body is not None:
            options['data'] = json.dumps(body)
            options['headers'] = {
                'Content-Type': content_type or 'application/json'}
        response = self._session.request(
            method, self.url + where, timeout=options.pop('timeout', 30),
            **options)
        if expect is not None and response.status_code != expect:
            raise AssertionError(
                f'{method} {where}: {response.status_code} instead of '
                f'{expect}: {response.text[:1000]}')
        return response

    def create(self, plural, obj, namespace=NAMESPACE):
        """Create an object and return it as stored by the API."""
        return self.request('POST', path(plural, namespace=namespace), obj,
                            expect=201).json()

    def get(self, plural, name, namespace=NAMESPACE):
        """Read an object; None when it does not exist."""
        response = self.request('GET', path(plural, name, namespace))
        if response.status_code == 404:
            return None
        response.raise_for_status()
        return response.json()

    def list(self, plural, namespace=NAMESPACE):
        """List the objects of a kind; in all namespaces when None."""
        return self.request('GET', path(plural, namespace=namespace),
                            expect=200).json()['items']

    def patch(self, plural, name, body, namespace=NAMESPACE,
              content_type=None):
        """Patch an object.

        :param body: a list is a JSON patch, a dictionary a merge patch,
            unless ``content_type`` says otherwise.
        :returns: the object afterwards.
        """
        if content_type is None:
            content_type = (JSON_PATCH if isinstance(body, list)
                            else MERGE_PATCH)
        return self.request('PATCH', path(plural, name, namespace), body,
                            content_type=content_type, expect=200).json()

    def delete(self, plural, name, namespace=NAMESPACE):
        """Delete an object; no error when it does not exist."""
        response = self.request('DELETE', path(plural, name, namespace))
        if response.status_code != 404:
            response.raise_for_status()

    def vm(self, name, namespace=NAMESPACE):
        """Read a VirtualMachine; None when it does not exist."""
        return self.get('virtualmachines', name, namespace)

    def vmi(self, name, namespace=NAMESPACE):
        """Read a VirtualMachineInstance; None when it does not exist."""
        return self.get('virtualmachineinstances', name, namespace)

    def do(self, name, verb, body=None, namespace=NAMESPACE):
        """Call a VM's subresource: ``start``, ``stop``, ``restart``, …"""
        return self.request(
            'PUT', f'/apis/subresources.kubevirt.io/v1/namespaces/{namespace}'
            f'/virtualmachines/{name}/{verb}',
            {} if body is None else body, expect=202)

    def set_gates(self, on=(), off=()):
        """Enable and disable feature gates; all others get their default.

        :param on: names for ``featureGates``.
        :param off: names for ``disabledFeatureGates``.
        """
        kubevirt = self.list('kubevirts', namespace=None)[0]['metadata']
        self.patch('kubevirts', kubevirt['name'], {
            'spec': {'configuration': {'developerConfiguration': {
                'featureGates': list(on),
                'disabledFeatureGates': list(off)}}}},
            namespace=kubevirt['namespace'])

    def apply(self, manifest):
        """Apply the objects of a manifest server-side, as ``kubectl`` does.

        Those of namespace ``default`` go to ``NAMESPACE``.

        :param manifest: path of a YAML file with any number of objects.
        """
        for obj in yaml.safe_load_all(manifest.read_text()):
            for part in (obj['metadata'], *obj.get('subjects', ())):
                if part.get('namespace') == 'default':
                    part['namespace'] = NAMESPACE
            meta, plural = obj['metadata'], obj['kind'].lower() + 's'
            if plural.endswith('ys'):
                plural = plural[:-2] + 'ies'
            self._apply(path(plural, meta['name'], meta.get('namespace')), obj)

    def _apply(self, where, obj):
        self.request('PATCH', where, obj, params={
            'fieldManager': MANAGER, 'force': 'true'},
            content_type='application/apply-patch+yaml').raise_for_status()

    def account_token(self, name, namespace=NAMESPACE):
        """Return a new token of a service account."""
        return self.request(
            'POST', path('serviceaccounts', name, namespace) + '/token', {},
            expect=201).json()['status']['token']

    def account(self, name, namespace=NAMESPACE):
        """Make a kubeconfig for a service account.

        :returns: path of the file; it is deleted with the sandbox.
        """
        token = self.account_token(name, namespace)
        config = yaml.safe_load(self.kubeconfig.read_text())
        config['users'][0]['user']['token'] = token
        config['contexts'][0]['context']['namespace'] = namespace
        made = self.kubeconfig.with_name(
            f'kubeconfig-{namespace}-{name}')
        made.touch(0o600)
        made.write_text(yaml.safe_dump(config))
        return made

    def upload_proxy(self):
        """Find CDI's upload proxy.

        :returns: its URL, and the path of a file with the CA's certificate.
        """
        config = self.request(
            'GET', '/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config',
            expect=200).json()
        bundle = self.get('configmaps', 'cdi-uploadproxy-signer-bundle',
                          'cdi')
        path = self.kubeconfig.with_name('upload-proxy.crt')
        path.write_text(bundle['data']['ca-bundle.crt'])
        return config['status']['uploadProxyURL'], path

    # Waiting

    def wait(self, plural, name, condition, namespace=NAMESPACE, timeout=30):
        """Wait with a watch until an object meets a condition.

        :param condition: function of the object, or of None when it does not
            exist; the wait ends when it returns true.
        :param timeout: seconds.
        :returns: the object that met the condition.
        :raises AssertionError: the time is over; the message has the
            object's last state.
        """
        deadline = time.monotonic() + timeout
        last = None
        while True:
            where = path(plural, namespace=namespace)
            query = {'fieldSelector': 'metadata.name=' + name}
            listed = self.request('GET', where, params=query,
                                  expect=200).json()
            last = listed['items'][0] if listed['items'] else None
            if condition(last):
                return last
            query.update(
                watch='true',
                resourceVersion=listed['metadata']['resourceVersion'])
            for event in self._watch(where, query, deadline):
                if event['type'] in ('ERROR', 'BOOKMARK'):
                    break
                last = (None if event['type'] == 'DELETED'
                        else event['object'])
                if condition(last):
                    return last
            if time.monotonic() >= deadline:
                if last is not None:
                    last['metadata'].pop('managedFields', None)
                raise AssertionError(
                    f'{plural} {namespace}/{name} did not become as wanted in '
                    f'{timeout:g} s; last: {json.dumps(last)[:4000]}')

    def wait_since(self, version, plural, name, condition,
                   namespace=NAMESPACE, timeout=30):
        """Wait until an object has met a condition, even if it does no more.

        :param version: ``resourceVersion`` of the object before that.
        :param condition: function of the object.
        :param timeout: seconds.
        :returns: the object that met the condition.
        :raises AssertionError: the time is over.
        """
        query = {'fieldSelector': 'metadata.name=' + name, 'watch': 'true',
                 'resourceVersion': version}
        for event in self._watch(path(plural, namespace=namespace), query,
                                 time.monotonic() + timeout):
            if condition(event['object']):
                return event['object']
        raise AssertionError(f'{plural} {namespace}/{name} did not become as '
                             f'wanted after version {version}')

    def _watch(self, where, query, deadline):
        """Yield the events of one watch until it ends or the deadline."""
        left = deadline - time.monotonic()
        if left <= 0:
            return
        query = dict(query, timeoutSeconds=max(1, round(left)))
        try:
            with self.request('GET', where, params=query, stream=True,
                              timeout=(5, left)) as response:
                if response.status_code != 200:
                    return
                # A chunk of the response is read as soon as it arrives.
                for line in response.iter_lines(chunk_size=2 ** 16):
                    if line:
                        yield json.loads(line)
        except requests.RequestException:
            return

    def has_scheduler(self) -> bool:
        """Whether pods get the condition ``PodScheduled``."""
        return True

    def wait_running(self, name, namespace=NAMESPACE, other_than=None,
                     timeout=30):
        """Wait for a running VMI.

        :param other_than: uid of a VMI to ignore.
        :param timeout: seconds.
        :returns: the VMI.
        """
        return self.wait(
            'virtualmachineinstances', name,
            lambda vmi: vmi is not None
            and vmi.get('status', {}).get('phase') == 'Running'
            and 'deletionTimestamp' not in vmi['metadata']
            and vmi['metadata']['uid'] != other_than,
            namespace, timeout)

    def wait_stopped(self, name, namespace=NAMESPACE, timeout=30):
        """Wait until a VM has no VMI and its status is Stopped.

        :returns: the VM.
        """
        self.wait('virtualmachineinstances', name, lambda vmi: vmi is None,
                  namespace, timeout)
        return self.wait(
            'virtualmachines', name,
            lambda vm: vm.get('status', {}).get('printableStatus')
            == 'Stopped', namespace, timeout)

    # Guests

    def guest(self, name, namespace=NAMESPACE):
        """Read the record of a guest: ``vmi``, ``running``, ``boots``."""
        return self.request('GET', f'/sandbox/guests/{namespace}/{name}',
                            expect=200).json()

    def boots(self, name, namespace=NAMESPACE):
        """List a guest's boots, oldest first."""
        return self.guest(name, namespace)['boots']

    def wait_boot(self, name, count, namespace=NAMESPACE, timeout=30):
        """Wait until a guest has booted a number of times in total.

        The record has no watch, so this method polls it.

        :param count: number of boots.
        :param timeout: seconds.
        :returns: the latest boot.
        """
        for _ in polling.attempts(timeout):
            boots = self.boots(name, namespace)
            if len(boots) >= count:
                return boots[-1]
        raise AssertionError(f'{namespace}/{name}: {len(boots)} boots after '
                             f'{timeout:g} s, not {count}: {boots}')

    def guest_does(self, name, action, namespace=NAMESPACE):
        """Make a guest act by itself.

        :param action: ``reboot``, ``shutdown``, ``crash``; ``lock`` or
            ``unlock`` the trays of its CD-ROM drives.
        """
        self.request(
            'POST', f'/sandbox/guests/{namespace}/{name}/{action}'
        ).raise_for_status()

    # Faults and counts

    def fault(self, action, *, verb='*', where='.*', count=1, **more):
        """Add a fault for the next matching calls; see `faults.Fault`.

        :param action: ``409``, ``429``, ``500``, ``503``, ``hang``,
            ``silence``, ``reset``, ``drop-after``, ``gone``, ``break`` or
            ``delay``.
        :param verb: HTTP method, ``WATCH``, ``WRITE`` or ``*``.
        :param where: regular expression, searched in the path.
        :param count: number of calls that fail.
        :param more: ``delay``, ``event``, ``user`` and ``after``.
        """
        self.request('POST', '/sandbox/faults', dict(
            more, verb=verb, path=where, count=count,
            action=str(action))).raise_for_status()

    def faults(self):
        """Read the configured faults, ``{faults: [{hits: …}, …]}``."""
        return self.request('GET', '/sandbox/faults', expect=200).json()

    def clear_faults(self):
        """Remove all faults."""
        self.request('DELETE', '/sandbox/faults').raise_for_status()

    def outage(self, seconds):
        """Make the API server unavailable; it keeps its objects.

        The control interface is unavailable as well. The method does not
        wait for the end; see `is_available`.

        :param seconds: duration.
        """
        self.request('POST', '/sandbox/outage',
                     {'seconds': seconds}).raise_for_status()

    def is_available(self):
        """Return whether the API server answers; poll it after `outage`."""
        try:
            return self.request('GET', '/version').ok
        except requests.RequestException:
            return False

    def stats(self):
        """Read the counters of API calls by verb and resource."""
        return self.request('GET', '/sandbox/stats', expect=200).json()

    def reset_stats(self):
        """Set the counters of API calls to zero."""
        self.request('DELETE', '/sandbox/stats').raise_for_status()
