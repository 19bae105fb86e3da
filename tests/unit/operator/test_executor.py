# SPDX-License-Identifier: Apache-2.0
import asyncio
import ipaddress

from cryptography import x509
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import executor
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import plan
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import store
from tests.unit.operator import bodies
from tests.unit.operator import cluster

MANAGER = 'sushy-kubevirt-operator'


def entry(manager=MANAGER, operation='Update', subresource='', **fields):
    made = {'manager': manager, 'operation': operation, 'fieldsV1': fields}
    if subresource:
        made['subresource'] = subresource
    return made


OTHER = entry('kubectl', a={})
STATUS = entry(subresource='status', s={})

# (managedFields, managedFields after adoption or None for no change)
CASES = (
    ([], None),
    ([OTHER], None),
    ([OTHER, STATUS], None),
    ([entry(operation='Apply', a={})], None),
    ([OTHER, entry(a={'b': {}})],
     [OTHER, entry(operation='Apply', a={'b': {}})]),
    ([entry(a={'b': {}}), OTHER, entry(operation='Apply', a={'c': {}}),
      STATUS],
     [OTHER, STATUS, entry(operation='Apply', a={'b': {}, 'c': {}})]),
)


class AdoptFieldsTestCase(base.BaseTestCase):

    def test_managed_fields_after_adoption(self):
        for entries, expected in CASES:
            with self.subTest(entries=entries):
                self.assertEqual(expected, executor._adopted_fields(entries))


class ReplacedObjectTestCase(base.BaseTestCase):

    def test_object_with_another_uid_is_not_written_to(self):
        kube = cluster.Cluster()
        body = {'apiVersion': 'v1', 'kind': 'Service',
                'metadata': {'name': 'a', 'namespace': 'lab'},
                'spec': {'type': 'NodePort'}}
        for step in plan.Apply, plan.Replace:
            for exists in False, True:
                if exists:
                    kube.add({**body, 'spec': {'type': 'ClusterIP'}})
                found = store.Store(kube, command_line.Options())
                with self.subTest(step=step, exists=exists), \
                        self.assertRaises(executor.PlanOutdated):
                    asyncio.run(executor.Writer(kube, found).change(
                        step(body, 'other'), plan.Tried()))
                # The cache has the object now.
                self.assertEqual(exists, found.get(
                    bmc_resources.SERVICE, 'lab', 'a') is not None)
            kube.remove('Service', 'lab', 'a')
        self.assertEqual([], kube.writes)


class MissingSecretTestCase(base.BaseTestCase):

    def test_secret_that_the_watch_has_reported_stays(self):
        # Between the answer that it is gone and now.
        kube = cluster.Cluster()
        kube.faults.append(lambda verb, kind, name: errors.Conflict('x')
                           if verb == 'create' else None)
        body = {'apiVersion': 'v1', 'kind': 'Secret',
                'metadata': {'name': 'a', 'namespace': 'lab'}}
        found = store.Store(kube, command_line.Options())
        found.secrets.put({'metadata': {
            **body['metadata'], 'uid': 'u', 'resourceVersion': '9'}})
        with self.assertRaises(executor.PlanOutdated):
            asyncio.run(executor.Writer(kube, found).create(body))
        self.assertEqual('9', found.secrets.version(
            objects.ObjectKey('lab', 'a')))


class IssueTestCase(base.BaseTestCase):
    """A certificate is issued in the same plan as its Service is created."""

    def execute(self, owner=bodies.UID, **service_spec):
        """Issue it; return its names."""
        kube = cluster.Cluster()
        found = store.Store(kube, command_line.Options())
        if service_spec:
            found.put({'apiVersion': 'v1', 'kind': 'Service', 'metadata': {
                'name': 'node-virtbmc', 'namespace': 'lab', 'uid': 'u',
                'ownerReferences': [{'uid': owner, 'controller': True}]},
                'spec': service_spec})
        pair = pki.make('authority')
        asyncio.run(executor.Executor(kube, found, None).execute(
            spec.read(bodies.body()),
            plan.Issue(('a.lab.svc',), for_new_service=True), facts.Facts(
                authority=facts.Authority(pair, pair.certificate)),
            plan.Tried()))
        return x509.load_pem_x509_certificate(secret_summary.pair(
            kube.objects['Secret', 'lab', 'node-virtbmc-tls']
        ).certificate.encode()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName).value

    def test_has_the_address_of_the_service(self):
        self.assertEqual(
            [x509.DNSName('a.lab.svc'),
             x509.IPAddress(ipaddress.ip_address('10.0.0.7'))],
            list(self.execute(clusterIP='10.0.0.7')))

    def test_is_not_issued_without_an_address(self):
        for service in ({}, {'clusterIP': ''}, {'clusterIP': 'None'},
                        # Of a deleted BMC of the same name.
                        {'clusterIP': '10.0.0.7', 'owner': 'another'}):
            with self.subTest(service=service), \
                    self.assertRaises(executor.PlanOutdated):
                self.execute(**service)


class AttemptsTestCase(base.BaseTestCase):

    def test_attempt_ignores_fields_set_by_cluster(self):
        kube = cluster.Cluster()
        body = {'apiVersion': 'v1', 'kind': 'Service',
                'metadata': {'name': 'a', 'namespace': 'lab'},
                'spec': {'type': 'ClusterIP'}}
        ref = 'Service', 'lab', 'a'
        kube.add({**body, 'metadata': {
            **body['metadata'], 'managedFields': [entry(
                'another', **{'f:spec': {'f:clusterIP': {}}})]},
            'spec': {**body['spec'], 'clusterIP': '10.0.0.7'}})
        tried = plan.Tried()
        asyncio.run(executor.Writer(kube, store.Store(
            kube, command_line.Options())).change(
            plan.Replace(body, kube.objects[ref]['metadata']['uid']), tried))
        # The attempt records the desired object without the cluster's fields.
        self.assertEqual({ref: plan.attempt(
            plan.Replace, body, kube.objects[ref])}, tried.attempts)

    def test_attempt_after_adoption_of_fields(self):
        """A refused attempt is known again without an event of a watch."""
        kube = cluster.Cluster()
        found = store.Store(kube, command_line.Options())
        body = {'apiVersion': 'v1', 'kind': 'Service',
                'metadata': {'name': 'a', 'namespace': 'lab'},
                'spec': {'ports': [{'name': 'redfish', 'port': 443}]}}
        ref = 'Service', 'lab', 'a'
        kube.add({**body, 'metadata': {
            **body['metadata'], 'managedFields': [entry(a={})]}})
        kube.faults.append(lambda verb, *_: errors.Rejected('')
                           if verb == 'apply' else None)
        tried = plan.Tried()
        with self.assertRaises(executor.PlanOutdated):
            asyncio.run(executor.Writer(kube, found).change(
                plan.Apply(body, kube.objects[ref]['metadata']['uid']),
                tried))
        self.assertEqual({ref: plan.attempt(
            plan.Apply, body, found.get(
                bmc_resources.SERVICE, 'lab', 'a'))}, tried.attempts)
