# SPDX-License-Identifier: Apache-2.0
"""The network path, with servers on loopback."""

import contextlib
import dataclasses
import socket
import threading

import fixtures
from oslotest import base

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator.diagnose import bmc as bmcs
from sushy_kubevirt.operator.diagnose import kinds
from sushy_kubevirt.operator.diagnose import network
from sushy_kubevirt.operator.diagnose import probes
from tests.unit.operator import bodies
from tests.unit.operator import cases
from tests.unit.operator.diagnose import fakes

SECONDS = 30
ROOT = (b'HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n'
        b'{"RedfishVersion": "1.6.0"}')
PONG = bytes.fromhex('0600ff06 000011be 40000010')
CAPABILITIES = bytes.fromhex('0600ff07 00 00000000 00000000 10'
                             '811c63 200038 00 01 80 04 02 000000 00 00')


class ProbesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.resend_after(2 * SECONDS)

    def resend_after(self, seconds):
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.operator.diagnose.probes._RESEND_SECONDS',
            seconds))

    def tcp(self, answer):
        """Serve one connection.

        :param answer: function of the connected socket
        :returns: port
        """
        server = self.stack.enter_context(
            socket.create_server(('127.0.0.1', 0)))

        def serve():
            with contextlib.suppress(OSError), server.accept()[0] as sock:
                answer(sock)
        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1]

    def redfish(self, answer, tls=False, seconds=SECONDS):
        return probes.redfish('127.0.0.1', self.tcp(answer), tls, seconds)

    def test_redfish(self):
        sent = []

        def answer(sock):
            sent.append(sock.recv(4096))
            sock.sendall(ROOT)
        self.assertEqual(probes.Answer(True), self.redfish(answer))
        self.assertTrue(sent[0].startswith(b'GET /redfish/v1/ HTTP/1.1\r\n'))
        self.assertNotIn(b'Authorization', sent[0])

    def test_another_web_server(self):
        for data in (b'HTTP/1.1 200 OK\r\n\r\nhello',
                     b'HTTP/1.1 503 no\r\n\r\n' + ROOT[-27:], b'\xff\x00',
                     b''):
            found = self.redfish(lambda sock, data=data: (
                sock.recv(4096), sock.sendall(data)))
            self.assertTrue(found.reached)
            self.assertIn('not a Redfish service root', found.fault)

    def test_silent_slow_and_endless_server(self):
        over = threading.Event()
        self.addCleanup(over.set)

        def drip(sock):
            while not over.wait(0.05):
                sock.sendall(b'x')

        def pour(sock):
            while True:
                sock.sendall(b'x' * 65536)
        for answer in lambda sock: over.wait(), drip:
            found = self.redfish(answer, seconds=0.5)
            self.assertTrue(found.reached)
            self.assertIn('has not answered', found.fault)
        self.assertIn('not a Redfish', self.redfish(pour).fault)

    def test_server_without_tls(self):
        found = self.redfish(lambda sock: sock.sendall(ROOT), tls=True)
        self.assertTrue(found.fault)
        self.assertIsNone(found.certificate)

    def test_refused_connection(self):
        # Bound but not listening: no other program can listen there.
        with socket.socket() as bound:
            bound.bind(('127.0.0.1', 0))
            found = probes.redfish(
                '127.0.0.1', bound.getsockname()[1], True, SECONDS)
        self.assertEqual((True, 'Connection refused'),
                         (found.reached, found.fault))

    def udp(self, *answers):
        """Answer datagrams; None is silence.

        :returns: port, and the list of the datagrams
        """
        server = self.stack.enter_context(
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        server.bind(('127.0.0.1', 0))
        got = []

        def serve():
            with contextlib.suppress(OSError):
                for one in answers:
                    data, where = server.recvfrom(4096)
                    got.append(data)
                    if one is not None:
                        server.sendto(one, where)
        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1], got

    def ipmi(self, *answers, seconds=SECONDS):
        port, self.got = self.udp(*answers)
        return probes.ipmi('127.0.0.1', port, seconds)

    def test_ipmi(self):
        self.assertEqual(probes.Answer(True), self.ipmi(PONG, CAPABILITIES))
        # Tables 13-6, 13-8 and 22-15.
        self.assertEqual(
            ['0600ff06000011be80000000',
             '0600ff07000000000000000000092018c88100388e04b5'],
            [one.hex() for one in self.got])

    def test_other_udp_servers(self):
        def changed(place, value):
            data = bytearray(CAPABILITIES)
            data[place] = value
            return bytes(data)
        for answers, fault in (
                ((b'hello',), 'RMCP ping'), ((b'',), 'RMCP ping'),
                ((PONG, PONG), 'Capabilities is none'),
                ((PONG, changed(20, 0xc1)), 'completion code C1h'),
                ((PONG, changed(24, 1)), 'not support IPMI 2.0')):
            found = self.ipmi(*answers)
            self.assertTrue(found.reached)
            self.assertIn(fault, found.fault)

    def test_silent_ipmi(self):
        found = self.ipmi(None, None, seconds=0.5)
        self.assertEqual((False, 'it has not answered in 0 s'),
                         (found.reached, found.fault))

    def test_lost_datagram_is_sent_again(self):
        self.resend_after(0.05)
        self.assertEqual(probes.Answer(True),
                         self.ipmi(None, PONG, CAPABILITIES))


class PathTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client()
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBERNETES_SERVICE_HOST'))

    def bmc(self, live=None, **spec):
        live = live or bodies.service()

        class Bmc(bmcs.Bmc):
            @property
            def service(self):
                return live
        return Bmc(bodies.bmc(**spec), {})

    def slices(self, *ready):
        self.client.put(kinds.ENDPOINT_SLICE, fakes.named(
            'node-virtbmc-x', 'lab', metadata={'labels': {
                'kubernetes.io/service-name': 'node-virtbmc'}},
            endpoints=[{'addresses': ['10.1.0.1'], 'conditions': (
                {} if one is None else {'ready': one})} for one in ready]))
        return fakes.brief(network.backends(
            fakes.reading(self.client), self.bmc()))

    def test_endpoints(self):
        for ready, expected in (
                ((), ('problem', 'NoReadyEndpoint')),
                ((False,), ('problem', 'NoReadyEndpoint')),
                ((True,), ('ok', 'EndpointsReady')),
                ((False, None), ('ok', 'EndpointsReady'))):
            self.assertEqual([expected], self.slices(*ready))

    def protocols(self, bmc, redfish, ipmi=probes.Answer(True)):
        for name, answer in (('redfish', redfish), ('ipmi', ipmi)):
            self.useFixture(fixtures.MonkeyPatch(
                f'sushy_kubevirt.operator.diagnose.probes.{name}',
                lambda *args, answer=answer: self.calls.append(
                    args) or answer))
        self.calls = []
        return list(network.protocols(
            fakes.reading(self.client), bmc, 'bmcs'))

    def test_both_protocols(self):
        bmc = self.bmc()
        found = self.protocols(bmc, probes.Answer(True, certificate=b'der'))
        self.assertEqual([('ok', 'Answers')] * 2, fakes.brief(found))
        self.assertEqual(b'der', bmc.served)
        self.assertEqual([('10.0.0.7', 443, True), ('10.0.0.7', 623)],
                         [one[:-1] for one in self.calls])
        self.assertIn('Redfish at 10.0.0.7:443', found[0].message)

    def test_protocols_that_are_not_served(self):
        self.protocols(self.bmc(ipmi={'enabled': False}, redfish={
            'plainHTTP': True}), probes.Answer(True))
        self.assertEqual([('10.0.0.7', 443, False)],
                         [one[:-1] for one in self.calls])
        # A load balancer without address, which a condition reports.
        self.protocols(self.bmc(bodies.service('LoadBalancer'), service={
            'type': 'LoadBalancer'}), probes.Answer(True))
        self.assertEqual([], self.calls)

    LOST = probes.Answer(False, 'it has not answered in 5 s')

    def test_address_of_the_cluster_from_outside(self):
        found = self.protocols(self.bmc(), self.LOST, self.LOST)
        self.assertEqual([('unknown', 'NotChecked')] * 2, fakes.brief(found))
        self.assertIn(
            '--namespace bmcs exec deployment/sushy-kubevirt-operator -- '
            'sushy-kubevirt-operator diagnose lab/node', found[0].remedy)

    def test_node_port(self):
        live = bodies.service('NodePort')
        for one, number in zip(live['spec']['ports'], (30443, 30623),
                               strict=True):
            one['nodePort'] = number
        bmc = self.bmc(live, service={'type': 'NodePort'})

        def called():
            found = self.protocols(bmc, self.LOST)
            self.assertEqual('ok', found[1].status.value)
            return found[0], [one[:2] for one in self.calls]
        cluster = [('10.0.0.7', 443), ('10.0.0.7', 623)]
        # No node is known.
        self.assertEqual(cluster, called()[1])
        for name, ready in ('a', 'False'), ('b', 'True'):
            self.client.put(kinds.NODE, fakes.named(name, status={
                'conditions': [{'type': 'Ready', 'status': ready}],
                'addresses': [{'type': 'Hostname', 'address': name},
                              {'type': 'InternalIP',
                               'address': f'node-{name}'}]}))
        found, calls = called()
        self.assertEqual([('node-b', 30443), ('node-b', 30623)], calls)
        self.assertEqual([('unknown', 'NotChecked')], fakes.brief([found]))
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBERNETES_SERVICE_HOST', '10.0.0.1'))
        self.assertEqual(cluster, called()[1])
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBERNETES_SERVICE_HOST'))
        self.client.denied.add(kinds.NODE)
        self.assertEqual(cluster, called()[1])

    def test_address_of_the_cluster_from_inside(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBERNETES_SERVICE_HOST', '10.0.0.1'))
        self.assertEqual(('problem', 'NotReached'), fakes.brief(
            self.protocols(self.bmc(), self.LOST))[0])

    def test_refused_connection(self):
        self.assertEqual(('problem', 'NoAnswer'), fakes.brief(self.protocols(
            self.bmc(), probes.Answer(True, 'Connection refused')))[0])

    def test_route(self):
        route = {'status': {'ingress': [{
            'host': 'bmc.apps.test',
            'conditions': [{'type': 'Admitted', 'status': 'True'}]}]}}
        bmc = dataclasses.replace(self.bmc(), verdict=cases.judged(
            bodies.body(), {'route': route})[2])
        found = self.protocols(bmc, self.LOST)
        self.assertIn(('bmc.apps.test', 443, True),
                      [one[:-1] for one in self.calls])
        # Unlike an address of the cluster, it is for clients outside.
        self.assertEqual(
            [('unknown', 'NotChecked'), ('problem', 'NotReached'),
             ('ok', 'Answers')], fakes.brief(found))

    def test_policies_are_named(self):
        def policy(name, selector, *types):
            return fakes.named(name, 'lab', spec={
                'podSelector': selector, 'policyTypes': list(types)})
        self.client.put(
            bmc_resources.POLICY, policy('all', {}, 'Ingress'),
            policy('egress', {}, 'Egress'), policy('old', {}),
            policy('bmcs', {'matchLabels': {
                'app.kubernetes.io/name': 'virtbmc'}}, 'Ingress'),
            policy('others', {'matchLabels': {'app': 'x'}}, 'Ingress'))
        balancer = self.bmc(
            bodies.service('LoadBalancer', ingress=[{'ip': '192.0.2.1'}]),
            service={'type': 'LoadBalancer'})
        found = self.protocols(balancer, self.LOST)[0]
        self.assertEqual(('problem', 'NotReached'), fakes.brief([found])[0])
        self.assertIn('may reach its pod: all, bmcs, old.', found.remedy)

    def test_selectors(self):
        labels = {'a': '1'}
        for selector, expected in (
                ({}, True), ({'matchLabels': {'a': '1'}}, True),
                ({'matchLabels': {'a': '2'}}, False),
                *(({'matchExpressions': [
                    {'key': key, 'operator': operator, 'values': values}]},
                    yes) for key, operator, values, yes in (
                        ('a', 'In', ['1'], True), ('a', 'In', ['2'], False),
                        ('a', 'NotIn', ['1'], False),
                        ('b', 'NotIn', ['1'], True),
                        ('a', 'Exists', None, True),
                        ('b', 'Exists', None, False),
                        ('b', 'DoesNotExist', None, True)))):
            self.assertIs(expected, network.selects(selector, labels))
