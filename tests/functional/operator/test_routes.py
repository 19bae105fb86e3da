# SPDX-License-Identifier: Apache-2.0
"""Routes of BMCs, with the API of OpenShift and an ingress controller."""

import time
import unittest

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from tests.fixtures import access_case
from tests.fixtures import openshift
from tests.fixtures import operator

PASSTHROUGH, REENCRYPT = ({'termination': one} for one in (
    'passthrough', 'reencrypt'))
SYSTEM = '/redfish/v1/Systems/1'
GROUP = 'route.openshift.io'
OVERLAY = operator.MANIFESTS / 'overlays' / 'openshift'


class RouteTestCase(access_case.AccessTestCase):

    FOLDER = OVERLAY
    SANDBOX = ('--openshift',)

    def setUp(self):
        super().setUp()
        self.ingress = openshift.IngressController(
            self.admin, self.account.parent)

    def asks(self, bmc, ca):
        """Return the power state that a client reads through the Route."""
        found = bmc.status['endpoints']['route']
        answer = operator.curl(
            found['url'], *self.ingress.curl(found['host']), config=(
                f'user = "{bmc.username}:{bmc.password}"\n'
                f'cacert = "{ca}"\n'))
        self.assertEqual(200, answer.code, answer.text)
        return answer.json()['PowerState']

    def route(self):
        return self.kubectl.get('route', 'box-virtbmc')

    def test_life(self):
        bmc = self.bmc(route=PASSTHROUGH).ready()
        host = f'box-virtbmc-{self.namespace}.apps.sandbox.test'
        self.assertEqual({'host': host, 'url': f'https://{host}{SYSTEM}'},
                         bmc.status['endpoints']['route'])
        self.assertIn(host, self.kubectl('get', 'vmbmc', '-o', 'wide'))
        # curl verifies the certificate of the BMC for the host.
        self.until('power', lambda: self.asks(bmc, bmc.ca_file()), 'Off')
        bmc.ipmi('power', 'on')
        self.until('power', lambda: self.asks(bmc, bmc.ca_file()), 'On')
        self._repair(bmc)
        bmc.patch(route=REENCRYPT)
        bmc.current()
        # curl verifies the ingress controller, which verifies the BMC.
        self.until('power', lambda: self.asks(bmc, self.ingress.ca), 'On')
        with self.assertRaises(AssertionError):
            self.asks(bmc, bmc.ca_file())
        bmc.patch(route=None)
        bmc.current()
        self.until('no route', lambda: self.kubectl.names('route'), [])
        self.assertNotIn('route', bmc.status['endpoints'])
        bmc.patch(route=PASSTHROUGH)
        bmc.current()
        self.kubectl('delete', 'vmbmc', 'box')
        self.until('no route', lambda: self.kubectl.names('route'), [])
        self.assert_no_warnings()
        self._check_rights()

    def _repair(self, bmc):
        before = self.route()
        self.kubectl('delete', 'route', 'box-virtbmc')
        self.until('new route', lambda: self.route()['spec'], before['spec'])
        # Another client takes fields of it, with more rights than usual.
        take = ('patch', 'route', 'box-virtbmc', '--type=merge', '-p',
                '{"spec": {"host": "a.test", "to": {"name": "other"}}}')
        self.kubectl(*take)
        self.until('repaired', lambda: self.route()['spec'], before['spec'])
        # If it insists, the Route is not deleted again.
        self.kubectl(*take)
        self.until('condition', bmc.condition, ('False', 'RouteChanged'))
        self.assertEqual(('a.test', 'box-virtbmc'), (
            self.route()['spec']['host'], self.route()['spec']['to']['name']))
        self.kubectl('delete', 'route', 'box-virtbmc')
        self.until('condition', bmc.condition, ('True', 'ServiceReady'))
        self.kubectl('label', 'route', 'box-virtbmc', 'kubevirt.io/'
                     'virtualmachinebmc-name=other', '--overwrite')
        self.until('labels', lambda: self.route()['metadata']['labels'],
                   before['metadata']['labels'])

    def _check_rights(self):
        """The operator needs all its rights to Routes."""
        routes = {one for one in self.can(kubectl.Kubectl(self.account))
                  if one[1].startswith(f'routes.{GROUP}')}
        hosts = ('create', f'routes.{GROUP}/custom-host')
        self.assertIn(hosts, routes)
        # The API server asked for this one.
        self.assertEqual(routes - {hosts}, {
            one for one in self.used(operator.USER)
            if one[1] == f'routes.{GROUP}'})

    def test_conflicts_are_reported(self):
        taken = {'apiVersion': GROUP + '/v1', 'kind': 'Route', 'metadata': {
            'name': 'box-virtbmc'}, 'spec': {
                'to': {'kind': 'Service', 'name': 'mine'}}}
        self.kubectl.apply(taken)
        bmc = self.bmc(route=PASSTHROUGH)
        self.until('condition', bmc.condition, ('False', 'NameTaken'))
        self.until('power', bmc.works, 'Off')
        self.assertEqual('mine', self.route()['spec']['to']['name'])
        # Its deletion is watched.
        self.kubectl('delete', 'route', 'box-virtbmc')
        bmc.ready()

    def test_claimed_host(self):
        host = f'box-virtbmc-{self.namespace}.apps.sandbox.test'
        self.kubectl.apply({
            'apiVersion': GROUP + '/v1', 'kind': 'Route',
            'metadata': {'name': 'aaa'}, 'spec': {
                'host': host, 'to': {'kind': 'Service', 'name': 'mine'}}})
        self.kubectl.wait('route/aaa', 'jsonpath={.status.ingress[0].host}='
                          + host)
        # Of Routes created in the same second, the UIDs decide which one
        # gets the host.
        created = self.kubectl.get('route', 'aaa')['metadata'][
            'creationTimestamp']
        self.until('older', lambda: created < time.strftime(
            '%Y-%m-%dT%H:%M:%SZ', time.gmtime()))
        bmc = self.bmc(route=PASSTHROUGH)
        self.until('condition', bmc.condition, ('False', 'RouteRejected'))
        self.assertIn('HostAlreadyClaimed: route aaa already exposes',
                      bmc.message())
        self.kubectl('delete', 'route', 'aaa')
        bmc.ready()


@unittest.skipIf(operator.ON_OPENSHIFT,
                 'the test needs a cluster without Routes')
@given_cluster.needs_sandbox('a cluster without Routes')
class OtherClusterTestCase(operator.OperatorTestCase):
    """A cluster that does not have Routes at first."""

    FOLDER = OVERLAY

    def test_routes_are_defined_later(self):
        bmc = self.bmc(route=REENCRYPT)
        self.until('condition', bmc.condition, ('False', 'RouteAPIMissing'))
        self.until('power', bmc.works, 'Off')
        self.assert_no_warnings()
        try:
            definition = openshift.route_definition()
        except openshift.Unavailable as exc:
            self.skipTest(str(exc))
        self.admin.apply(definition)
        self.addCleanup(self.admin, 'delete', 'crd',
                        definition['metadata']['name'])
        # OpenShift's schema accepts the Route. Nothing serves it.
        self.until('condition', bmc.condition, ('False', 'RoutePending'))
        spec = self.kubectl.get('route', 'box-virtbmc')['spec']
        self.assertEqual(
            ({'kind': 'Service', 'name': 'box-virtbmc', 'weight': 100},
             'reencrypt', 'None'),
            (spec['to'], spec['tls']['termination'], spec['wildcardPolicy']))
        self.assertIn('Unsupported value', self.kubectl.refused(
            'patch', 'route', 'box-virtbmc', '--type=merge', '-p',
            '{"spec": {"tls": {"termination": "none"}}}'))
        bmc.patch(route=PASSTHROUGH)
        self.until('termination', lambda: self.kubectl.get(
            'route', 'box-virtbmc')['spec']['tls'], PASSTHROUGH)


class WithoutOverlayTestCase(operator.OperatorTestCase):

    FOLDER = operator.MANIFESTS
    SANDBOX = ('--openshift',)

    def test_operator_without_rights(self):
        bmc = self.bmc(route=PASSTHROUGH)
        self.until('condition', bmc.condition, ('False', 'RouteAPIForbidden'))
        self.until('power', bmc.works, 'Off')
