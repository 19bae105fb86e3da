# SPDX-License-Identifier: Apache-2.0
"""What users of a BMC are told in clusters that differ from the usual ones.

See doc/source/operator/variants.rst; ``media/test_storage`` has more about
storage, ``redfish/test_virtual_media`` a cluster without CDI.
"""

import pathlib
import re

import requests

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import webserver
from tests.fixtures import base
from tests.fixtures import black_hole
from tests.fixtures import image_server
from tests.fixtures import operator
from tests.fixtures import redfish_pod

DEVICE = '/redfish/v1/Systems/1/VirtualMedia/Cd'
JSON = '-H', 'Content-Type: application/json'


@given_cluster.needs_sandbox('a cluster whose storage classes it may change')
class VariantsTestCase(operator.OperatorTestCase):

    def test_no_default_storage_class(self):
        address = webserver.own_address()
        if address is None:
            self.skipTest('this host has loopback only, which a BMC refuses')
        images = self.useFixture(image_server.ImageServer(address))
        self.mark_default('false')
        self.addCleanup(self.mark_default, 'true')
        box = self.bmc().ready()
        self.assertEqual(204, box.curl(
            DEVICE + '/Actions/VirtualMedia.InsertMedia', '-X', 'POST', *JSON,
            '-d', f'{{"Image": "{images.url}/a.iso"}}').code)
        self.until('failure', lambda: self.device(box)['Status']['Health'],
                   'Critical')
        status = str(self.device(box)['Status'])
        self.assertIn('no default storage class', status)
        self.assertIn('spec.virtualMedia.storageClassName of '
                      f'VirtualMachineBMC {self.namespace}/box', status)
        self.mark_default('true')
        self.until('image', lambda: self.device(box)['Status']['Health'], 'OK')

    def mark_default(self, value):
        self.admin('annotate', '--overwrite', 'storageclass', 'standard',
                   f'storageclass.kubernetes.io/is-default-class={value}')

    def device(self, box):
        return box.curl(DEVICE).json()

    def test_network_policies_are_valid(self):
        for path in sorted((operator.MANIFESTS / 'samples/network-policies'
                            ).iterdir()):
            self.kubectl('apply', '-f', path)
        found = {one['metadata']['name'] for one in self.kubectl.get(
            'networkpolicies')['items']}
        self.assertEqual(
            {'default-deny', 'sushy-kubevirt-operator', 'virtbmc-clients',
             'virtbmc-egress', 'virtbmc-importers', 'virtbmc-metrics',
             'virtbmc-uploads'}, found)


class RefusedPodTestCase(operator.OperatorTestCase):
    """The namespace does not admit what is added to the pods.

    As the sandbox has no mutating webhooks, an annotation of the pods stands
    for a mesh's container: Pod Security refuses both.
    """

    ARGUMENTS = (
        '--pod-label=sidecar.istio.io/inject=true',
        '--pod-annotation=container.apparmor.security.beta.kubernetes.io/'
        'bmc=unconfined')

    def test_reason_is_in_condition(self):
        self.admin('label', 'namespace', self.namespace,
                   'pod-security.kubernetes.io/enforce=restricted')
        box = self.bmc()
        self.until('condition', lambda: box.condition('BMCEmulatorReady'),
                   ('False', 'EmulatorNotReady'))
        self.assertIn('violates PodSecurity "restricted:latest"',
                      box.message())
        labels = self.kubectl.get('deployment', 'box-virtbmc')['spec'][
            'template']['metadata']['labels']
        self.assertEqual(('true', 'none'), tuple(labels[name] for name in (
            'sidecar.istio.io/inject', 'istio.io/dataplane-mode')))


class _BlockedPod(redfish_pod.RedfishPod):
    """A pod that a NetworkPolicy keeps from the API server."""

    def _account(self, bmc):
        port = self.useFixture(black_hole.BlackHole()).port
        path = pathlib.Path(super()._account(bmc))
        blocked = self.home / 'kubeconfig'
        blocked.write_text(re.sub(
            r'server: .*', f'server: https://127.0.0.1:{port}',
            path.read_text()))
        return blocked


class BlockedTestCase(base.SandboxTestCase):

    def test_api_server_cannot_be_reached(self):
        pod = self.useFixture(_BlockedPod(self.sandbox))

        def problem():
            found = requests.get(pod.health + '/readyz', timeout=30)
            return found.status_code, 'NetworkPolicy' in found.text

        self.until(lambda: problem() == (503, True), 30, problem)
        pod.process.wait_output('/readyz fails')
        self.assertIn('check that no NetworkPolicy or firewall blocks the '
                      'connection', pod.process.output)
