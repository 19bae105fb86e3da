# SPDX-License-Identifier: Apache-2.0
"""Test case for the behaviour of CDI: images and DataVolumes.

Like those of KubeVirt, the tests can run against another cluster, whose
importers must reach this host's loopback. Tests that need access to the
content of claims are skipped there.
"""

import base64
import pathlib
import ssl
import threading
import uuid

import fixtures

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import sandbox
from kubevirt_sandbox.testing import webserver
from tests.functional import kubevirt

VOLUMES = '/apis/cdi.kubevirt.io/v1beta1/namespaces/%s/datavolumes'
MIB = 1 << 20


class Web(fixtures.Fixture):
    """A web server with images.

    :param tls: `certificates.Certificate` to serve HTTPS
    :ivar files: dict of path to content in bytes, or to a function of the
        request handler that sends the response
    :ivar gate: Event for which responses below ``/gate/`` wait
    :ivar requests: list of (method, path, headers)
    """

    def __init__(self, tls=None):
        super().__init__()
        self.tls = tls

    def _setUp(self):
        self.files, self.requests = {}, []
        self.gate = threading.Event()
        fixture = self

        class Handler(webserver.Handler):

            def do_GET(self):
                fixture.requests.append(
                    (self.command, self.path, dict(self.headers)))
                if self.path.startswith('/gate/'):
                    fixture.gate.wait(30)
                found = fixture.files.get(self.path)
                if callable(found):
                    found(self)
                elif found is None:
                    self.answer(404, b'no such image')
                else:
                    self.answer(200, found)

            do_HEAD = do_GET

            def answer(self, code, body=b'', **headers):
                self.send_response(code)
                self.send_header('Content-Length', str(len(body)))
                for name, value in headers.items():
                    self.send_header(name.replace('_', '-'), value)
                self.end_headers()
                if self.command == 'GET':
                    self.wfile.write(body)

        context = None
        if self.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.tls.certificate, self.tls.key)
        self.url = self.useFixture(webserver.WebServer(Handler, context)).url
        self.addCleanup(self.gate.set)

    def put(self, path, content):
        """Serve a file; return its URL."""
        self.files[path] = content
        return self.url + path


class CdiTestCase(kubevirt.KubeVirtTestCase):
    """Test case with a cluster, a web server and DataVolumes."""

    ARGUMENTS = ()

    @classmethod
    def setUpClass(cls):
        # Skip that of KubeVirtTestCase, whose sandbox stores no images.
        super(kubevirt.KubeVirtTestCase, cls).setUpClass()
        cls.external = given_cluster.GIVEN
        cls.storage = pathlib.Path(cls.share(fixtures.TempDir()).path)
        cls.cluster = cls.share(
            given_cluster.GivenCluster(0, arguments=cls.ARGUMENTS)
            if cls.external else sandbox.Sandbox(
                0, cls.BOOT_SECONDS, (
                    '--storage', cls.storage, '--import-back-off', '0.05',
                    *cls.ARGUMENTS)))

    def setUp(self):
        super().setUp()
        self.web = self.useFixture(Web())

    def need_sandbox(self):
        """Skip the test if it cannot read the content of claims."""
        if self.external:
            self.skipTest('only the sandbox shows the content of claims')

    # DataVolumes

    def volume(self, source, size='64Mi', name=None, immediate=True,
               **spec):
        """Return a DataVolume.

        :param source: URL, or ``spec.source``
        :param size: requested storage, or None
        :param spec: replacements of members of ``spec``
        """
        if isinstance(source, str):
            source = {'http': {'url': source}}
        storage = {'accessModes': ['ReadWriteOnce']}
        if size:
            storage['resources'] = {'requests': {'storage': size}}
        meta = {'name': name or 'test-' + uuid.uuid4().hex[:10]}
        if immediate:
            meta['annotations'] = {
                'cdi.kubevirt.io/storage.bind.immediate.requested': 'true'}
        return {'apiVersion': 'cdi.kubevirt.io/v1beta1',
                'kind': 'DataVolume', 'metadata': meta, 'spec': {
                    k: v for k, v in {'source': source, 'storage': storage,
                                      **spec}.items() if v is not None}}

    def create_volume(self, source, size='64Mi', **more):
        """Create one until the end of the test; return its name."""
        body = self.volume(source, size, **more)
        self.cluster.request('POST', VOLUMES % sandbox.NAMESPACE, body,
                             expect=201)
        name = body['metadata']['name']
        self.addCleanup(self.delete_volume, name)
        return name

    def refuse_volume(self, source, size='64Mi', code=422, **more):
        """Create an invalid one; return the message of the error."""
        return self.call('POST', VOLUMES % sandbox.NAMESPACE,
                         self.volume(source, size, **more), code)

    def delete_volume(self, name):
        """Delete one and wait until its claim is gone."""
        where = VOLUMES % sandbox.NAMESPACE + '/' + name
        response = self.cluster.request('DELETE', where)
        if response.status_code != 404:
            response.raise_for_status()
        self.cluster.wait('persistentvolumeclaims', name,
                          lambda claim: claim is None)

    def get_volume(self, name):
        """Return one, or None."""
        response = self.cluster.request(
            'GET', VOLUMES % sandbox.NAMESPACE + '/' + name)
        return None if response.status_code == 404 else response.json()

    def wait_volume(self, name, condition, timeout=20):
        """Watch one until it meets a condition; return it."""
        return self.cluster.wait('datavolumes', name, condition,
                                 timeout=timeout)

    def wait_phase(self, name, *phases, timeout=20):
        return self.wait_volume(
            name, lambda volume: volume.get('status', {}).get(
                'phase') in phases, timeout)

    def wait_running(self, name, reason, status='False'):
        """Wait for a reason of the condition Running; return its message."""
        volume = self.wait_volume(name, lambda volume: (
            self.condition(volume, 'Running').get('reason') == reason
            and self.condition(volume, 'Running')['status'] == status))
        return self.condition(volume, 'Running').get('message', '')

    def wait_failure(self, source, size='64Mi', reason='Error', **more):
        """Create one whose import fails.

        :returns: its name and the message of the condition Running
        """
        name = self.create_volume(source, size, **more)
        return name, self.wait_running(name, reason)

    @staticmethod
    def condition(obj, kind):
        """Return a condition, or an empty dict."""
        return next((c for c in obj.get('status', {}).get('conditions', ())
                     if c['type'] == kind), {})

    def claim(self, name):
        return self.cluster.get('persistentvolumeclaims', name)

    def events(self, name):
        """Return (type, reason, message) of the events of an object."""
        found = self.cluster.list('events')
        return [(e['type'], e['reason'], e['message']) for e in found
                if e['involvedObject']['name'] == name]

    # Content of claims

    def disk(self, name, namespace=sandbox.NAMESPACE):
        """Return the path of a claim's disk."""
        self.need_sandbox()
        return self.storage / namespace / name / 'disk.img'

    # Other objects

    def create_secret(self, **values):
        """Create a Secret; return its name."""
        name = 'test-' + uuid.uuid4().hex[:10]
        self.cluster.create('secrets', {
            'metadata': {'name': name}, 'data': {
                key: base64.b64encode(value.encode()).decode()
                for key, value in values.items()}})
        self.addCleanup(self.cluster.delete, 'secrets', name)
        return name

    def create_config_map(self, **values):
        """Create a ConfigMap; return its name."""
        name = 'test-' + uuid.uuid4().hex[:10]
        self.cluster.create('configmaps', {'metadata': {'name': name},
                                           'data': values})
        self.addCleanup(self.cluster.delete, 'configmaps', name)
        return name

    def secure_web(self):
        """Start an HTTPS server; return it and its certificate fixture."""
        tls = self.useFixture(certificates.Certificate())
        return self.useFixture(Web(tls)), tls
