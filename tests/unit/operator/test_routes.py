# SPDX-License-Identifier: Apache-2.0
"""Routes of BMCs, on the in-memory cluster."""

import asyncio
import base64
import datetime
from unittest import mock

from cryptography import x509
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import controller
from sushy_kubevirt.operator import metrics
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import routes
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator import store
from tests.unit.operator import bodies
from tests.unit.operator import harness

KEY = harness.KEY
ROUTE = 'Route', 'lab', 'node-virtbmc'
HOST = 'node-virtbmc-lab.apps.test'
PASSTHROUGH, REENCRYPT = ({'termination': one} for one in (
    'passthrough', 'reencrypt'))
GROUP = 'route.openshift.io'


def with_route(route=PASSTHROUGH, **fields):
    return bodies.body(route=route, **fields)


def ingress(host=HOST, status='True', **more):
    return {'host': host, 'routerName': 'default', 'conditions': [
        {'type': 'UnservableInFutureVersions', 'status': 'True'},
        {'type': 'Admitted', 'status': status, **more}]}


def endpoint(kube):
    return harness.conditions(kube)['EndpointReady']


class RouteTestCase(base.BaseTestCase):

    def test_object(self):
        made = routes.route(bodies.bmc(route={
            'termination': 'passthrough', 'labels': {
                'router': 'a', naming.MANAGED_BY: 'other'}, 'annotations': {
                'a': 'b', stored_names.APPLIED: 'x'}}), 'PEM')
        self.assertEqual(
            {'to': {'kind': 'Service', 'name': 'node-virtbmc'},
             'port': {'targetPort': 'redfish'},
             'tls': {'termination': 'passthrough'}}, made['spec'])
        self.assertEqual({'router': 'a', **naming.labels('node')},
                         made['metadata']['labels'])
        self.assertEqual({'a': 'b'}, made['metadata']['annotations'])
        for authority, more in (
                ('PEM', {'destinationCACertificate': 'PEM'}), ('', {})):
            self.assertEqual(
                {'termination': 'reencrypt', **more}, routes.route(
                    bodies.bmc(route=REENCRYPT), authority)['spec']['tls'])

    def test_generated_host_is_one_label(self):
        names = set()
        for name in ('a', 'b' * 50, 'b' * 51, 'c' * 200):
            for namespace in ('lab', 'n' * 40):
                bmc = mock.Mock(namespace=namespace)
                bmc.name = name
                made = naming.route(bmc)
                self.assertLessEqual(len(f'{made}-{namespace}'), 63)
                names.add((made, namespace))
        self.assertEqual(8, len(names))
        bmc.namespace, bmc.name = 'lab', 'node'
        self.assertEqual('node-virtbmc', naming.route(bmc))

    def test_hosts(self):
        live = {'status': {'ingress': [
            ingress('a.test'), ingress('b.test', 'False', reason='Why',
                                       message='Because'),
            ingress('c.test'), ingress('a.test')]}}
        self.assertEqual(['a.test', 'c.test'], routes.hosts(live))
        self.assertEqual('Why: Because', routes.rejection(live))
        for live in (None, {}, {'status': {}}, {'status': {'ingress': [{}]}}):
            self.assertEqual([], routes.hosts(live))
            self.assertEqual('', routes.rejection(live))


class ReconcileTestCase(base.BaseTestCase):

    def start(self, body=None):
        kube = harness.cluster_with(body or with_route())
        operator = harness.Operator(kube)
        operator.run()
        return kube, operator

    def alternatives(self, kube):
        """Return the names in the BMC's certificate."""
        secret = kube.objects['Secret', 'lab', 'node-virtbmc-tls']
        names = x509.load_pem_x509_certificate(
            secret_summary.pair(secret).certificate.encode()).extensions
        return names.get_extension_for_class(
            x509.SubjectAlternativeName).value.get_values_for_type(
                x509.DNSName)

    def reported(self, kube):
        return kube.objects['VirtualMachineBMC', *KEY]['status'][
            'endpoints'].get('route')

    def test_life(self):
        kube, operator = self.start()
        self.assertTrue(naming.is_ours(
            bodies.bmc(), kube.objects[ROUTE]))
        self.assertEqual({'host': HOST, 'url': f'https://{HOST}'
                          '/redfish/v1/Systems/1'}, self.reported(kube))
        self.assertEqual(('True', 'EndpointAssigned'), endpoint(kube))
        self.assertIn(HOST, self.alternatives(kube))
        kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
            route=REENCRYPT))
        operator.run()
        self.assertEqual(
            {'termination': 'reencrypt', 'destinationCACertificate':
                kube.objects['ConfigMap', 'lab', 'node-virtbmc-ca']['data'][
                    'ca.crt']}, kube.objects[ROUTE]['spec']['tls'])
        self.assertNotIn(HOST, self.alternatives(kube))
        kube.change('VirtualMachineBMC', *KEY, harness.set_spec(route=None))
        operator.run()
        self.assertNotIn(ROUTE, kube.objects)
        self.assertIsNone(self.reported(kube))
        self.assertEqual(('True', 'EndpointAssigned'), endpoint(kube))

    def test_hosts_of_others_are_not_certified(self):
        # An admin of the namespace may write the status of its Routes.
        kube, operator = self.start()
        for host, certified in (
                ('kubernetes.default.svc', False), ('short', False),
                ('bmc.example.com', False), ('192.0.2.1', False),
                ('other-virtbmc-lab.apps.test', False),
                ('node-virtbmc-lab', False), ('node-virtbmc-lab.', False),
                ('node-virtbmc-lab.x.svc', False),
                ('node-virtbmc-lab.\xfc.test', False),
                ('node-virtbmc-lab' + '.test' * 50, False),
                ('node-virtbmc-lab.other.test', True), (HOST, True)):
            kube.change(*ROUTE, lambda obj: obj.update(
                status={'ingress': [ingress(host)]}))
            operator.run()
            self.assertEqual(certified, host in self.alternatives(kube), host)

    def test_renewed_ca(self):
        def authority():
            return kube.objects[ROUTE]['spec']['tls'][
                'destinationCACertificate']

        kube, operator = self.start(with_route(REENCRYPT))
        old = authority()
        with mock.patch.object(pki, '_now', lambda: (
                datetime.datetime.now(datetime.UTC)
                + pki.AUTHORITY_LIFE * 3 / 4)):
            operator.run()
            # The pod still serves the previous certificate for a while.
            self.assertTrue(authority().endswith(old))
            self.assertLess(len(old), len(authority()))

    def test_ca_of_a_users_certificate(self):
        pair = self.start()[0].objects['Secret', 'lab', 'node-virtbmc-tls']
        kube = harness.cluster_with(with_route(
            REENCRYPT, redfish={'tls': {'secretName': 'cert'}}))
        kube.add({'apiVersion': 'v1', 'kind': 'Secret',
                  'type': 'kubernetes.io/tls', 'metadata': {
                      'name': 'cert', 'namespace': 'lab'},
                  'data': {**pair['data'], 'ca.crt': pair['data'][
                      'tls.crt']}})
        operator = harness.Operator(kube)
        operator.run()
        self.assertEqual(
            secret_summary.pair(pair).certificate,
            kube.objects[ROUTE]['spec']['tls']['destinationCACertificate'])
        # Nothing but certificates gets into a Route, nor into the cache.
        for text in b'password', b'\n' * 2 ** 16 + base64.b64decode(
                pair['data']['tls.crt']):
            kube.change('Secret', 'lab', 'cert', lambda obj: obj[
                'data'].update({'ca.crt': base64.b64encode(text).decode()}))
            operator.run()
            self.assertEqual({'termination': 'reencrypt'},
                             kube.objects[ROUTE]['spec']['tls'])
            self.assertEqual(('False', 'RouteAuthorityUnusable'),
                             endpoint(kube))
        kube.change('Secret', 'lab', 'cert', lambda obj: obj['data'].pop(
            'ca.crt'))
        operator.run()
        self.assertEqual({'termination': 'reencrypt'},
                         kube.objects[ROUTE]['spec']['tls'])
        self.assertEqual(('True', 'EndpointAssigned'), endpoint(kube))

    def test_repair(self):
        kube, operator = self.start()
        before = kube.objects[ROUTE]

        def claim(obj):
            obj['spec'].update(host='a.test', to={'kind': 'Service',
                                                  'name': 'other'})
            obj['metadata']['managedFields'] = [{
                'manager': 'oc', 'fieldsV1': {'f:spec': {'f:host': {}}}}]
        kube.change(*ROUTE, claim)
        operator.run()
        after = kube.objects[ROUTE]
        self.assertEqual(before['spec'], after['spec'])
        # It was applied in vain, as another client holds a field.
        self.assertNotEqual(before['metadata']['uid'],
                            after['metadata']['uid'])
        kube.remove(*ROUTE)
        operator.run()
        self.assertEqual(before['spec'], kube.objects[ROUTE]['spec'])

    def test_repeated_conflict(self):
        def change(**fields):
            kube.change(*ROUTE, lambda obj: (
                obj['spec'].update(fields), obj['metadata'].update(
                    managedFields=[{'manager': 'kyverno', 'fieldsV1': {
                        'f:spec': {f'f:{name}': {} for name in fields}}}])))
            operator.run()

        def deletions():
            return kube.writes.count(('delete', *ROUTE[::2]))

        kube, operator = self.start()
        change(host='a.test')
        self.assertEqual((1, HOST), (deletions(), kube.objects[ROUTE][
            'spec']['host']))
        self.assertEqual(('True', 'EndpointAssigned'), endpoint(kube))
        for _ in range(3):
            change(host='a.test')
            self.assertEqual((1, 'a.test'), (deletions(), kube.objects[ROUTE][
                'spec']['host']))
            self.assertEqual(('False', 'RouteChanged'), endpoint(kube))
        # Its cause is removed, as the message says.
        kube.remove(*ROUTE)
        operator.run()
        self.assertEqual(HOST, kube.objects[ROUTE]['spec']['host'])
        self.assertEqual(('True', 'EndpointAssigned'), endpoint(kube))
        # Other fields, or another spec, are another conflict.
        change(host='b.test')
        self.assertEqual((2, HOST), (deletions(), kube.objects[ROUTE][
            'spec']['host']))
        change(host='b.test')
        self.assertEqual(('False', 'RouteChanged'), endpoint(kube))
        kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
            route={**PASSTHROUGH, 'annotations': {'a': 'b'}}))
        operator.run()
        self.assertEqual((3, HOST), (deletions(), kube.objects[ROUTE][
            'spec']['host']))
        self.assertEqual(('True', 'EndpointAssigned'), endpoint(kube))

    def test_conflict_at_each_creation(self):
        # As by a mutating webhook.
        kube = harness.cluster_with(with_route())
        put = kube._put

        def mutate(obj):
            if obj['kind'] == 'Route':
                obj['spec']['host'] = 'a.test'
                obj['metadata']['managedFields'] = [{
                    'manager': 'x', 'fieldsV1': {'f:spec': {'f:host': {}}}}]
            return put(obj)
        kube._put = mutate
        harness.Operator(kube).run()
        self.assertEqual(1, kube.writes.count(('delete', *ROUTE[::2])))
        self.assertEqual(('False', 'RouteChanged'), endpoint(kube))

    def test_not_served(self):
        kube, operator = self.start()
        for found, reason in (
                ([ingress(status='False', reason='HostAlreadyClaimed')],
                 'RouteRejected'), ([], 'RoutePending'),
                ([ingress()], 'EndpointAssigned')):
            kube.change(*ROUTE, lambda obj: obj.update(
                status={'ingress': found}))
            operator.run()
            self.assertEqual(reason, endpoint(kube)[1])

    def test_foreign_route(self):
        foreign = {'apiVersion': GROUP + '/v1', 'kind': 'Route', 'metadata': {
            'name': 'node-virtbmc', 'namespace': 'lab'}, 'spec': {}}
        kube = harness.cluster_with(with_route())
        kube.add(foreign)
        before = dict(kube.objects[ROUTE])
        operator = harness.Operator(kube)
        operator.run()
        self.assertEqual(before, kube.objects[ROUTE])
        self.assertEqual(('False', 'NameTaken'), endpoint(kube))
        # The rest works.
        self.assertEqual(('True', 'EmulatorReady'), harness.conditions(kube)[
            'BMCEmulatorReady'])
        self.assertIsNone(self.reported(kube))
        kube.change('VirtualMachineBMC', *KEY, harness.set_spec(route=None))
        operator.run()
        self.assertEqual(before, kube.objects[ROUTE])
        self.assertEqual(('True', 'EndpointAssigned'), endpoint(kube))

    def test_refused_route(self):
        kube = harness.cluster_with(with_route())
        kube.faults.append(lambda verb, kind, name: errors.Rejected(
            'no custom-host') if (verb, kind) == ('create', 'Route') else None)
        with self.assertRaises(AssertionError):
            harness.Operator(kube).run()
        self.assertEqual(('False', 'Refused'), endpoint(kube))
        self.assertIn(('Deployment', 'lab', 'node-virtbmc'), kube.objects)


class WatchTestCase(base.BaseTestCase):
    """The controller, where Routes are missing at first."""

    def run_scenario(self, kube, scenario):
        async def run():
            options = command_line.Options(system_namespace='system')
            operator = controller.Controller(
                options, kube, store.Store(kube, options), metrics.Metrics())
            await operator.start()
            try:
                async with asyncio.timeout(20):
                    await operator.listed.wait()
                    await scenario(kube)
            finally:
                await operator.close()
        with self.assertNoLogs('sushy_kubevirt', 'ERROR'):
            with mock.patch.object(store, 'SERVED_SECONDS', 0.01):
                asyncio.run(run())

    async def reason(self, kube, reason):
        def found():
            status = kube.objects['VirtualMachineBMC', *KEY].get('status')
            return status and harness.conditions(kube)['Ready'][1]
        while found() != reason:
            await asyncio.sleep(0.005)

    def test_api_is_added(self):
        def forbid(verb, kind, name):
            return errors.AccessDenied('no') if (verb, kind) == (
                'list', 'Route') else None

        async def scenario(kube):
            await self.reason(kube, 'RouteAPIMissing')
            self.assertIn(('Deployment', 'lab', 'node-virtbmc'), kube.objects)
            kube.faults.append(forbid)
            kube.groups.add(GROUP)
            await self.reason(kube, 'RouteAPIForbidden')
            kube.faults.clear()
            await self.reason(kube, 'ServiceReady')
            # Routes are watched.
            uid = kube.objects[ROUTE]['metadata']['uid']
            kube.remove(*ROUTE)
            while kube.objects.get(ROUTE, {'metadata': {'uid': uid}})[
                    'metadata']['uid'] == uid:
                await asyncio.sleep(0.005)
        self.run_scenario(harness.cluster_with(with_route()), scenario)

    def test_outage_at_the_start(self):
        kube = harness.cluster_with(with_route())
        kube.groups.add(GROUP)
        failures = [errors.Unavailable('not now')] * 3
        kube.faults.append(lambda verb, kind, name: failures.pop() if (
            failures and (verb, kind) == ('list', 'Route')) else None)
        self.run_scenario(kube, lambda kube: self.reason(
            kube, 'ServiceReady'))
        self.assertEqual([], failures)

    def test_only_bmcs_with_routes_wait_for_an_outage(self):
        kube = harness.cluster_with(with_route())
        kube.add(bodies.body('other'))
        kube.groups.add(GROUP)
        operator = harness.Operator(kube)
        operator.run()
        # The operator's next process begins during the outage.
        before = kube.snapshot()
        tls = kube.objects['Secret', 'lab', 'node-virtbmc-tls']
        kube.faults.append(lambda verb, kind, name: errors.Unavailable(
            'not now') if kind == 'Route' else None)
        kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
            nodeSelector={'a': 'b'}))

        async def ready(name):
            while not (kube.objects['VirtualMachineBMC', 'lab', name].get(
                    'status')):
                await asyncio.sleep(0.005)

        async def scenario(kube):
            await ready('other')
            kube.add(bodies.body('later'))
            await ready('later')
            for ref, obj in before.items():
                if ref[0] != 'VirtualMachineBMC' and 'node-' in ref[2]:
                    self.assertEqual(obj, kube.snapshot()[ref], ref)
            kube.faults.clear()
            while 'nodeSelector' not in kube.objects[
                    'Deployment', 'lab', 'node-virtbmc']['spec'][
                        'template']['spec']:
                await asyncio.sleep(0.005)
            # It was not issued again without the Route's host.
            self.assertEqual(tls, kube.objects[
                'Secret', 'lab', 'node-virtbmc-tls'])

        self.run_scenario(kube, scenario)

    def test_deletion_does_not_wait_for_an_outage(self):
        kube = harness.cluster_with(bodies.cross_namespace(route=PASSTHROUGH))
        kube.groups.add(GROUP)
        harness.Operator(kube).run()
        kube.remove('VirtualMachineBMC', *KEY)
        self.assertIn(('VirtualMachineBMC', *KEY), kube.objects)
        kube.faults.append(lambda verb, kind, name: errors.Unavailable(
            'not now') if kind == 'Route' else None)

        async def scenario(kube):
            while ('VirtualMachineBMC', *KEY) in kube.objects:
                await asyncio.sleep(0.005)
        self.run_scenario(kube, scenario)

    def test_bmcs_without_routes_do_not_wait_for_an_outage(self):
        async def scenario(kube):
            await self.reason(kube, 'ServiceReady')
            self.assertNotIn(ROUTE, kube.objects)
            kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
                route=PASSTHROUGH))
            kube.faults.clear()
            while ROUTE not in kube.objects:
                await asyncio.sleep(0.005)

        kube = harness.cluster_with(bodies.body())
        kube.groups.add(GROUP)
        kube.faults.append(lambda verb, kind, name: errors.Unavailable(
            'not now') if kind == 'Route' else None)
        self.run_scenario(kube, scenario)

    def test_not_asked_for_until_a_bmc_wants_one(self):
        asked = []

        async def scenario(kube):
            await self.reason(kube, 'ServiceReady')
            await asyncio.sleep(0.1)
            self.assertEqual(1, len(asked))
            kube.change('VirtualMachineBMC', *KEY, harness.set_spec(
                route=PASSTHROUGH))
            await self.reason(kube, 'RouteAPIMissing')
            kube.groups.add(GROUP)
            await self.reason(kube, 'ServiceReady')

        kube = harness.cluster_with(bodies.body())

        async def serves(resource):
            asked.append(resource.group)
            return resource.group in kube.groups
        kube.serves = serves
        self.run_scenario(kube, scenario)
