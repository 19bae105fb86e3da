# SPDX-License-Identifier: Apache-2.0
"""Hosts that the operator keeps BMCs from: the cluster's own, and others."""

import json
import urllib.parse

from tests.fixtures import operator

SERVICES = '10.96.0.0/12'
EXCEPTED = '10.96.0.10'

SUBSCRIPTIONS = '/redfish/v1/EventService/Subscriptions'


class DeniedHostsTestCase(operator.OperatorTestCase):

    ARGUMENTS = ('--denied-hosts', '192.0.2.0/24', '--denied-hosts-except',
                 EXCEPTED, '--denied-hosts-except', 'images.lab.svc')

    @classmethod
    def install(cls):
        super().install()
        cls.admin('apply', '-f', '-', stdin=json.dumps({
            'apiVersion': 'networking.k8s.io/v1', 'kind': 'ServiceCIDR',
            'metadata': {'name': 'second'}, 'spec': {'cidrs': [SERVICES]}}))

    def post(self, bmc, path, **body):
        return bmc.curl(path, '-X', 'POST', '-H', 'Content-Type: '
                        'application/json', '-d', json.dumps(body))

    def test_cluster_is_denied(self):
        # What the author of a BMC can allow does not widen it.
        box = self.bmc(virtualMedia={'allowedHosts': ['*', '0.0.0.0/0'],
                                     'allowLoopback': True}).ready()
        device = '/redfish/' + box.url().partition('/redfish/')[2] + (
            '/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia')
        server = urllib.parse.urlsplit(self.sandbox.url).netloc
        for host in ('kubernetes.default.svc', 'db.lab.svc.cluster.local',
                     '10.96.0.1', '10.111.255.255', '[::ffff:10.96.0.1]',
                     '192.0.2.7', server):
            for property_, answer in (
                    ('Destination', self.post(
                        box, SUBSCRIPTIONS, Destination=f'https://{host}/a',
                        Protocol='Redfish', Context='x', HttpHeaders=[
                            {'Authorization': 'Bearer stolen'}])),
                    ('Image', self.post(box, device,
                                        Image=f'https://{host}/a.iso'))):
                self.assertEqual(400, answer.code, (host, answer.text))
                self.assertIn(property_, answer.text)
                if host != server:
                    self.assertIn('is in --denied-hosts of '
                                  'sushy-kubevirt-operator', answer.text)
        for host in EXCEPTED, 'images.lab.svc', '198.51.100.1':
            answer = self.post(box, SUBSCRIPTIONS, Context='x',
                               Destination=f'https://{host}/a',
                               Protocol='Redfish')
            self.assertEqual(201, answer.code, (host, answer.text))
