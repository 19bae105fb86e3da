# SPDX-License-Identifier: Apache-2.0
"""What the sample NetworkPolicies let through, beside one that denies all.

Kubernetes has no dry run of NetworkPolicies, so `allows` evaluates them by the
rules of networking.k8s.io/v1 (those for the fields that the samples use).
"""

import dataclasses
import ipaddress

from oslotest import base
import yaml

from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator.shared import shard_manifests
from sushy_kubevirt.operator import spec
from tests.fixtures import checkout
from tests.unit.operator import bodies

SAMPLES = checkout.ROOT / 'etc/kubernetes/samples/network-policies'

#: Labels of CDI's pods, of pkg/controller/import-controller.go and
#: upload-controller.go, and of those of DNS: cluster/addons/dns of Kubernetes,
#: pkg/manifests of OpenShift's cluster-dns-operator.
IMPORTER = {'app': 'containerized-data-importer',
            'cdi.kubevirt.io': 'importer',
            'prometheus.cdi.kubevirt.io': 'true'}
UPLOAD_SERVER = {'app': 'containerized-data-importer',
                 'cdi.kubevirt.io': 'cdi-upload-server'}
UPLOAD_PROXY = {'cdi.kubevirt.io': 'cdi-uploadproxy'}
CDI = {'cdi.kubevirt.io': 'cdi-deployment'}


@dataclasses.dataclass(frozen=True)
class Peer:
    """A pod, by namespace and labels; or a host, by its address."""

    namespace: str = ''
    labels: dict = dataclasses.field(default_factory=dict)
    address: str = ''


def _matches(selector, labels):
    for key, value in (selector.get('matchLabels') or {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get('matchExpressions') or ():
        assert one['operator'] == 'In', one
        if labels.get(one['key']) not in one['values']:
            return False
    return True


def _is_peer(rule, peer, namespace):
    if 'ipBlock' in rule:
        network = ipaddress.ip_network(rule['ipBlock']['cidr'])
        address = peer.address and ipaddress.ip_address(peer.address)
        return bool(address) and address in network and not any(
            address in ipaddress.ip_network(one)
            for one in rule['ipBlock'].get('except') or ())
    if peer.address:
        return False
    if 'namespaceSelector' in rule:
        if not _matches(rule['namespaceSelector'], {
                'kubernetes.io/metadata.name': peer.namespace}):
            return False
    elif peer.namespace != namespace:
        return False
    return _matches(rule.get('podSelector') or {}, peer.labels)


def allows(policies, direction, pod, peer, protocol, port):
    """Evaluate the NetworkPolicies of a namespace for one end.

    :param policies: list of dict
    :param direction: ``Ingress`` or ``Egress`` of the pod
    :param pod: `Peer`, in the namespace of the policies
    :param peer: `Peer`, the other end
    :param port: number at the end that listens
    """
    selected = [one['spec'] for one in policies
                if direction in one['spec']['policyTypes']
                and _matches(one['spec']['podSelector'], pod.labels)]
    if not selected:
        return True
    side, word = {'Ingress': ('ingress', 'from'),
                  'Egress': ('egress', 'to')}[direction]
    return any(
        (word not in rule or any(
            _is_peer(each, peer, pod.namespace) for each in rule[word]))
        and ('ports' not in rule or any(
            each['protocol'] == protocol
            and each['port'] <= port <= each.get('endPort', each['port'])
            for each in rule['ports']))
        for one in selected for rule in one.get(side) or ())


def load(*names):
    return [document for name in names for document in
            yaml.safe_load_all((SAMPLES / name).read_text())]


class NetworkPoliciesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        bmc = spec.read(bodies.by_ref())    # with HTTP beside HTTPS
        self.template = deployments.deployment(
            bmc, deployments.Defaults('any'))['spec']['template']
        self.bmc = Peer(bmc.namespace, self.template['metadata']['labels'])
        self.shared = Peer(bmc.namespace, shard_manifests.deployment(
            bmc.namespace, 0, deployments.Defaults('any'), 1, 'uid')[
                'spec']['template']['metadata']['labels'])
        self.ports = {
            port['name']: (port['protocol'], port['containerPort'])
            for one in self.template['spec']['containers']
            for port in one['ports']}

    def check(self, files, direction, pod, peers, ports, expected=True):
        deny, samples = load('default-deny.yaml'), load(*files)
        for peer in peers:
            for port in ports:
                with self.subTest(peer=peer, port=port):
                    self.assertFalse(allows(deny, direction, pod, peer, *port))
                    self.assertEqual(expected, allows(
                        deny + samples, direction, pod, peer, *port))

    def egress(self, pod, peers, ports, expected=True, file='bmcs.yaml'):
        self.check([file], 'Egress', pod, peers, ports, expected)

    def ingress(self, pod, peers, ports, expected=True, file='bmcs.yaml'):
        self.check([file], 'Ingress', pod, peers, ports, expected)

    def test_clients_of_bmcs(self):
        clients = [Peer('metal3', {'app': 'ironic'}),
                   Peer('openshift-machine-api'),
                   Peer('openshift-ingress'), Peer('openshift-host-network'),
                   Peer(address='192.0.2.7')]
        served = [self.ports[name] for name in (
            'redfish', 'redfish-http', 'ipmi')]
        self.ingress(self.bmc, clients, served)
        self.ingress(self.bmc, [Peer('other'), Peer(self.bmc.namespace),
                                Peer(address='198.51.100.7')], served, False)

    def test_clients_of_bmcs_of_metal3(self):
        """Tenants' pods, and guests beside the BMCs, do not reach them."""
        policies = load('../metal3-tenancy/network-policies.yaml')
        pod = Peer('bare-metal', self.bmc.labels)
        launcher = {'kubevirt.io': 'virt-launcher'}
        for peer, expected in (
                (Peer('baremetal-operator-system'), True),
                (Peer('metal3'), True), (Peer('tenant-a'), False),
                (Peer('bare-metal', launcher), False),
                (pod, False), (Peer(address='198.51.100.7'), False)):
            for name in 'redfish', 'ipmi':
                with self.subTest(peer=peer, port=name):
                    self.assertEqual(expected, allows(
                        policies, 'Ingress', pod, peer, *self.ports[name]))

    def test_clients_of_bmcs_in_shared_pods(self):
        last = placement.MAX_BMCS_PER_POD - 1
        redfish, http, ipmi = (
            [(protocol, first), (protocol, first + last)]
            for protocol, first in (('TCP', placement.REDFISH_PORT),
                                    ('TCP', placement.HTTP_PORT),
                                    ('UDP', placement.IPMI_PORT)))
        self.ingress(self.shared, [Peer('metal3')], redfish + http + ipmi)
        self.ingress(self.shared, [Peer('other')], redfish + http + ipmi,
                     False)
        policies = load('../metal3-tenancy/network-policies.yaml')
        pod = Peer('bare-metal', self.shared.labels)
        for peer, expected in ((Peer('metal3'), True),
                               (Peer('tenant-a'), False), (pod, False)):
            for port in redfish + ipmi:
                self.assertEqual(expected, allows(
                    policies, 'Ingress', pod, peer, *port), (peer, port))

    def test_metrics(self):
        metrics = [self.ports['bmc-health']]
        self.assertEqual(4, len(self.ports))
        for pod in self.bmc, self.shared:
            self.ingress(pod, [Peer('monitoring')], metrics)
            self.ingress(pod, [Peer('metal3')], metrics, False)

    def test_needs_of_pods(self):
        dns = (Peer('kube-system', {'k8s-app': 'kube-dns'}),
               [('UDP', 53), ('TCP', 53)])
        openshift_dns = (Peer('openshift-dns'), [('UDP', 5353),
                                                 ('TCP', 5353)])
        api = Peer(address='10.0.0.2'), [('TCP', 6443)]
        image = Peer(address='203.0.113.9'), [('TCP', 80), ('TCP', 443)]
        ironic = Peer('metal3'), [('TCP', 6180), ('TCP', 6183)]
        proxy = Peer('cdi', UPLOAD_PROXY), [('TCP', 8443)]
        importer = Peer(self.bmc.namespace, IMPORTER)
        operator = Peer('sushy-kubevirt-system', self.operator_labels())
        for pod, file, needs in (
                *((pod, 'bmcs.yaml', (dns, openshift_dns, api, image, proxy,
                                      ironic))
                  for pod in (self.bmc, self.shared)),
                (importer, 'bmcs.yaml', (dns, openshift_dns, image, ironic)),
                (operator, 'operator.yaml', (dns, openshift_dns, api))):
            for peer, ports in needs:
                self.egress(pod, [peer], ports, True, file)
            self.egress(pod, [Peer('default', {'app': 'database'}),
                              Peer(address='10.0.0.9')],
                        [('TCP', 5432), ('UDP', 623)], False, file)
        self.ingress(operator, [Peer('openshift-monitoring')],
                     [('TCP', 8080)], True, 'operator.yaml')
        # Not what a client makes them request from the cluster.
        for pod in self.bmc, self.shared, importer:
            self.egress(pod, [
                Peer('default', {'app': 'database'}),
                *(Peer(address=one) for one in (
                    '10.96.0.1', '10.0.0.9', '172.20.0.1', '100.64.0.1',
                    '169.254.169.254', 'fd00::1', 'fe80::1'))],
                [('TCP', 80), ('TCP', 443)], False)
        self.egress(importer, [Peer(address='10.0.0.2')], [('TCP', 6443)],
                    False)

    def operator_labels(self):
        text = (checkout.ROOT / 'etc/kubernetes/base/operator.yaml'
                ).read_text()
        return next(one for one in yaml.safe_load_all(text) if one[
            'kind'] == 'Deployment')['spec']['template']['metadata']['labels']

    def test_imports_and_uploads(self):
        importer = Peer(self.bmc.namespace, IMPORTER)
        server = Peer(self.bmc.namespace, UPLOAD_SERVER)
        for namespace in 'cdi', 'openshift-cnv', 'harvester-system':
            self.ingress(importer, [Peer(namespace, CDI)], [('TCP', 8443)])
            self.ingress(server, [Peer(namespace, UPLOAD_PROXY)],
                         [('TCP', 8443)])
        self.ingress(server, [Peer('cdi', CDI), Peer('default')],
                     [('TCP', 8443)], False)

    def test_other_pods_are_not_selected(self):
        guest = {'kubevirt.io': 'virt-launcher', 'vm.kubevirt.io/name': 'vm'}
        for policy in load('bmcs.yaml', 'operator.yaml'):
            self.assertTrue(policy['spec']['podSelector']['matchLabels'])
            self.assertFalse(_matches(policy['spec']['podSelector'], guest))

    def test_bmcs_of_tenants_hosts(self):
        policies = load('../metal3-tenancy/network-policies.yaml')
        here = policies[0]['metadata']['namespace']
        guest = {'kubevirt.io': 'virt-launcher', 'vm.kubevirt.io/name': 'vm'}
        bmc = dataclasses.replace(self.bmc, namespace=here)
        for peer, expected in (
                (Peer('baremetal-operator-system'), True),
                (Peer('metal3'), True), (Peer('tenant-a'), False),
                (Peer(here, guest), False), (bmc, False),
                (Peer(address='192.0.2.1'), False)):
            for name, port in self.ports.items():
                self.assertEqual(
                    expected and name in ('redfish', 'ipmi'), allows(
                        policies, 'Ingress', bmc, peer, *port), (peer, name))

    def test_own_policy_replaces_that_of_clients(self):
        samples = [one for one in load('bmcs.yaml')
                   if one['metadata']['name'] != 'virtbmc-clients']
        own = network.policy(spec.read(bodies.by_ref(networkPolicy={
            'enabled': True, 'allowedNamespaces': ['lab-clients']})))
        for namespace, expected in (('lab-clients', True), ('metal3', False)):
            for name in 'redfish', 'redfish-http', 'ipmi':
                self.assertEqual(expected, allows(
                    [*load('default-deny.yaml'), *samples, own], 'Ingress',
                    self.bmc, Peer(namespace), *self.ports[name]))
