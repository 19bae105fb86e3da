# SPDX-License-Identifier: Apache-2.0
"""A BMC reaches its desired state however often its operator is killed."""

import asyncio
import copy
import itertools

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cache
from sushy_kubevirt.operator import certificate_authority
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import reconcile
from sushy_kubevirt.operator import rollout
from sushy_kubevirt.operator import workqueue
from tests.unit.operator import bodies
from tests.unit.operator import cluster

KEY = bodies.NAMESPACE, 'node'
ALLOWED = {'bmc.kubevirt.io/allow-from': 'lab'}

HERE = ('Deployment', 'Service', 'ServiceAccount', 'Role', 'RoleBinding',
        'ConfigMap', 'Secret')


class Nobody:
    """No foreign object is in conflict."""

    def watch(self, key, refs):
        self.refs = refs


class Operator:
    """A process: it knows what it lists, and works on one BMC."""

    def __init__(self, there, **said):
        self.there = there
        said = command_line.Options(**said)
        self.cache = cache.Cache(there)
        self.woken = []
        self.rollout = rollout.Rollout(said.max_unavailable,
                                       self.woken.extend)
        self.foreign_objects = Nobody()
        self.reconciler = reconcile.Reconciler(
            said, there, self.cache,
            certificate_authority.CertificateAuthority(there, 'system'),
            self.rollout, self.foreign_objects)
        self.see()

    def see(self):
        """Have what there is, as the watches tell it."""
        objects = self.cache.objects
        for resource in (*bmc_resources.OWNED, bmc_resources.BMC):
            there = self.there.of(resource.kind)
            names = {(one['metadata']['namespace'], one['metadata']['name'])
                     for one in there}
            for at in objects.names(resource):
                if at not in names:
                    objects.drop(resource, *at)
            for obj in there:
                if resource == bmc_resources.BMC:
                    self.cache.put_bmc(copy.deepcopy(obj))
                elif naming.made_by_us(obj):
                    objects.put(resource, obj)
        for kind, kept in (('VirtualMachine', self.cache.machines),
                           ('Secret', self.cache.secrets)):
            there = self.there.of(kind)
            for at in kept.names():
                if not any((one['metadata']['namespace'],
                            one['metadata']['name']) == at for one in there):
                    kept.drop(*at)
            for obj in there:
                kept.put(obj)

    def run(self, key=KEY):
        """Work until there is nothing to do; what fails is tried again."""
        for _ in range(8):
            before = len(self.there.writes)
            self.see()
            try:
                asyncio.run(self.reconciler.reconcile(key))
            except workqueue.Failure:
                continue
            self.see()
            if len(self.there.writes) == before:
                return
        raise AssertionError(f'it comes to no end: {self.there.writes[-10:]}')


def conditions(there, name='node'):
    """{type: (status, reason)} of a BMC."""
    status = there.objects['VirtualMachineBMC', bodies.NAMESPACE, name][
        'status']
    return {one['type']: (one['status'], one['reason'])
            for one in status['conditions']}


def fields(**changes):
    def change(body):
        body['spec'].update(changes)
        body['metadata']['generation'] += 1
    return change


def annotated(annotations):
    def change(obj):
        obj['metadata']['annotations'] = annotations
    return change


def extended(obj):
    """A user adds a container."""
    obj['spec']['template']['spec']['containers'].append(
        {'name': 'more', 'image': 'evil'})


# A name, the body of the BMC, and what happens one after the other: each a
# function of the cluster.
STORIES = {
    'made': (bodies.body(), ()),
    'plain': (bodies.body(redfish={'plainHTTP': True}), ()),
    'another spec': (bodies.body(), (
        lambda there: there.change('VirtualMachineBMC', *KEY, fields(
            redfish={'plainHTTP': True}, runStrategy='Always',
            networkPolicy={'enabled': True})),
        lambda there: there.change('VirtualMachineBMC', *KEY, fields(
            redfish={}, networkPolicy={}, ipmi={'enabled': False})))),
    'put right': (bodies.body(), (
        lambda there: there.remove('Deployment', 'lab', 'node-virtbmc'),
        lambda there: there.remove('Secret', 'lab', 'node-virtbmc-auth'),
        lambda there: there.remove('Secret', 'lab', 'node-virtbmc-tls'),
        lambda there: there.remove('Service', 'lab', 'node-virtbmc'),
        lambda there: there.remove('Role', 'lab', 'node-virtbmc'),
        lambda there: there.change('Deployment', 'lab', 'node-virtbmc',
                                   extended),
        lambda there: there.change(
            'RoleBinding', 'lab', 'node-virtbmc',
            lambda obj: obj['roleRef'].update(name='admin')),
        lambda there: there.change(
            'Secret', 'lab', 'node-virtbmc-auth',
            lambda obj: obj['data'].pop('password')))),
    'elsewhere': (bodies.elsewhere(), (
        lambda there: there.change('VirtualMachine', 'far', 'vm',
                                   annotated({})),
        lambda there: there.change('VirtualMachine', 'far', 'vm',
                                   annotated(ALLOWED)),
        lambda there: there.change('Secret', 'far', 'key', annotated({})),
        lambda there: there.change('Secret', 'far', 'key',
                                   annotated(ALLOWED)))),
    'elsewhere no more': (bodies.elsewhere(), (
        lambda there: there.remove('VirtualMachineBMC', *KEY),)),
    'VM made anew': (bodies.body(), (
        lambda there: there.remove('VirtualMachine', 'lab', 'vm'),
        lambda there: there.add(cluster.vm()))),
}


def begun(body):
    """A cluster in which a user has just created a BMC."""
    there = cluster.Cluster()
    there.add(cluster.vm())
    there.add(cluster.vm('far', allowed='lab'))
    for at in ('lab', 'far'):
        secret = bodies.secret(at, annotations=dict(ALLOWED))
        there.add({'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
                   **secret})
    there.add(body)
    return there


class ReconcileTestCase(base.BaseTestCase):

    def test_all_of_it_is_made(self):
        there = begun(bodies.body())
        Operator(there).run()
        self.assertEqual(('True', 'ServiceReady'), conditions(there)['Ready'])
        mine = [ref for ref, obj in there.objects.items()
                if naming.made_by_us(obj) and ref[1] == 'lab']
        self.assertEqual(set(HERE), {kind for kind, *_ in mine})
        for kind, namespace, name in mine:
            obj = there.objects[kind, namespace, name]
            owner = 'vm' if name == 'vm-bmc-state' else 'node'
            self.assertEqual(
                [owner], [one['name'] for one in obj['metadata'][
                    'ownerReferences']], name)
        status = there.objects['VirtualMachineBMC', *KEY]['status']
        self.assertEqual(
            ('10.0.0.7', '10.0.0.7', 'vm', 'node-virtbmc-auth', 3),
            tuple(status[name] for name in (
                'serviceIP', 'clusterIP', 'virtualMachine', 'authSecret',
                'observedGeneration')))

    def test_at_rest_nothing_is_asked(self):
        there = begun(bodies.body())
        Operator(there).run()
        again = Operator(there)
        there.faults.append(lambda verb, kind, name: (
            None if (verb, kind) == ('get', 'Secret')
            else AssertionError((verb, kind, name))))
        again.run()
        there.faults[:] = [lambda *what: AssertionError(what)]
        again.run()

    def test_killed_at_any_write(self):
        for story, (body, happens) in STORIES.items():
            whole = begun(body)
            writes = []
            Operator(whole).run()
            for one in happens:
                one(whole)
                writes.append(len(whole.writes))
                Operator(whole).run()
            total = len(whole.writes)
            self.assertGreater(total, 5)
            for life in range(0, total, 1 if total < 30 else 2):
                # Carried out without an answer, or not carried out; where
                # the stories are long, one of the two.
                for done in ((False, True) if total < 30
                             else (bool(life % 4),)):
                    with self.subTest(story=story, life=life, done=done):
                        there = begun(body)
                        there.life = life, done
                        self._live(there)
                        for one in happens:
                            one(there)
                            self._live(there)
                        self.assertEqual(whole.facts(), there.facts())

    def _live(self, there):
        try:
            Operator(there).run()
        except cluster.Killed:
            there.life = None
            Operator(there).run()

    def test_withdrawn(self):
        there = begun(bodies.elsewhere())
        Operator(there).run()
        self.assertEqual([naming.FINALIZER], there.objects[
            'VirtualMachineBMC', *KEY]['metadata']['finalizers'])
        self.assertEqual('far', there.of('Role')[0]['metadata']['namespace'])
        self.assertTrue(there.of('Deployment'))
        there.change('Secret', 'far', 'key', annotated({}))
        Operator(there).run()
        for kind in ('Deployment', 'Role', 'RoleBinding', 'ServiceAccount'):
            self.assertEqual([], there.of(kind), kind)
        self.assertNotIn(('Secret', 'lab', 'node-virtbmc-auth'),
                         there.objects)
        self.assertEqual(('False', 'ReferenceNotPermitted'),
                         conditions(there)['Ready'])
        there.remove('VirtualMachineBMC', *KEY)
        Operator(there).run()
        self.assertEqual([], there.of('VirtualMachineBMC'))

    def test_nothing_is_made_for_one_that_is_gone(self):
        there = begun(bodies.body())
        operator = Operator(there)
        there.remove('VirtualMachineBMC', *KEY)
        self.assertIsNone(asyncio.run(operator.reconciler.reconcile(KEY)))
        # The certificate authority belongs to no BMC.
        self.assertEqual([('create', 'Secret', naming.AUTHORITY)],
                         there.writes)

    def test_one_that_was_changed_is_made_as_it_is_now(self):
        there = begun(bodies.body())
        operator = Operator(there)
        there.change('VirtualMachineBMC', *KEY, fields(
            redfish={'plainHTTP': True}))
        asyncio.run(operator.reconciler.reconcile(KEY))
        self.assertNotIn('node-virtbmc-tls', {
            name for _, _, name in there.writes})
        self.assertEqual({'create', 'patch'}, {
            verb for verb, *_ in there.writes})

    def test_a_permission_that_is_withdrawn_at_the_last_moment(self):
        there = begun(bodies.elsewhere())
        operator = Operator(there)
        asked = []

        def withdraw(verb, kind, name):
            if (verb, kind, name) == ('get', 'Secret', 'key'):
                asked.append(name)
                if len(asked) == 2:
                    there.change('Secret', 'far', 'key', annotated({}))
        there.faults.append(withdraw)
        asyncio.run(operator.reconciler.reconcile(KEY))
        self.assertNotIn('node-virtbmc-auth', {
            name for _, _, name in there.writes})
        self.assertEqual(('False', 'ReferenceNotPermitted'),
                         conditions(there)['SecretAvailable'])

    def test_what_is_changed_while_the_status_is_written_is_news(self):
        def finalized(body):
            body['metadata']['finalizers'] = [naming.FINALIZER]

        def deleted(body):
            finalized(body)
            body['metadata']['deletionTimestamp'] = '2026-01-01T00:00:00Z'

        for change in (fields(redfish={'plainHTTP': True}), finalized,
                       deleted):
            there = begun(bodies.body())
            operator = Operator(there)
            operator.run()
            there.change('VirtualMachineBMC', *KEY, fields(
                service={'type': 'NodePort'}))
            operator.see()
            worked_on = operator.cache.bmc(KEY)['metadata']['generation']
            told = []

            def meanwhile(verb, kind, name):
                if (verb, kind) == ('patch', 'VirtualMachineBMC'):
                    there.faults.clear()
                    there.change('VirtualMachineBMC', *KEY, change)
                    told.append(copy.deepcopy(
                        there.objects['VirtualMachineBMC', *KEY]))

            there.faults.append(meanwhile)
            asyncio.run(operator.reconciler.reconcile(KEY))
            # The status is there, and the watch is a little behind.
            self.assertEqual(worked_on, there.objects[
                'VirtualMachineBMC', *KEY]['status']['observedGeneration'])
            self.assertTrue(operator.cache.put_bmc(told[0]))

    def test_a_certificate_is_looked_at_before_it_ends(self):
        there = begun(bodies.body())
        operator = Operator(there)
        operator.run()
        seconds = asyncio.run(operator.reconciler.reconcile(KEY))
        self.assertAlmostEqual(
            pki.CERTIFICATE_LIFE.total_seconds() * 2 / 3, seconds,
            delta=3600)

    def test_the_server_says_how_long(self):
        there = begun(bodies.body())
        there.faults.append(lambda verb, *_: errors.TooManyRequests(
            'later', 7) if verb == 'create' else None)
        with self.assertRaises(workqueue.Failure) as caught:
            asyncio.run(Operator(there).reconciler.reconcile(KEY))
        self.assertEqual(7, caught.exception.seconds)

    def test_somebody_who_always_changes_it_back(self):
        there = begun(bodies.body())
        operator = Operator(there)
        operator.run()
        look, changes = operator.reconciler._look, itertools.count(2)

        async def meddled(*args):
            there.change('Deployment', 'lab', 'node-virtbmc', lambda obj: (
                obj['spec'].update(replicas=next(changes))))
            operator.see()
            return await look(*args)
        operator.reconciler._look = meddled
        before = len(there.writes)
        with self.assertRaises(workqueue.Failure) as caught, \
                self.assertLogs(level='WARNING'):
            asyncio.run(operator.reconciler.reconcile(KEY))
        # Neither for ever, nor at once again.
        self.assertLess(len(there.writes), before + 20)
        self.assertGreaterEqual(caught.exception.seconds, 10)

    def test_names_of_others(self):
        for kind, name, type_ in (
                ('Deployment', 'node-virtbmc', 'BMCEmulatorReady'),
                ('ServiceAccount', 'node-virtbmc', 'BMCEmulatorReady'),
                ('Role', 'node-virtbmc', 'BMCEmulatorReady'),
                ('Service', 'node-virtbmc', 'EndpointReady'),
                ('ConfigMap', 'node-virtbmc', 'BMCEmulatorReady'),
                ('Secret', 'node-virtbmc-auth', 'SecretAvailable'),
                ('Secret', 'node-virtbmc-tls', 'BMCEmulatorReady')):
            with self.subTest(kind=kind, name=name):
                there = begun(bodies.body())
                theirs = there.add({
                    'kind': kind, 'type': 'Opaque', 'spec': {}, 'data': {},
                    'metadata': {'name': name, 'namespace': 'lab'}})
                before = copy.deepcopy(theirs)
                operator = Operator(there)
                operator.run()
                self.assertEqual(before, there.objects[kind, 'lab', name])
                self.assertEqual(('False', 'NameTaken'),
                                 conditions(there)[type_])
                if kind != 'Service':
                    self.assertEqual([], [
                        one for one in there.of('Deployment')
                        if naming.made_by_us(one)])
                there.remove(kind, 'lab', name)
                operator.cache.objects.drop(
                    bmc_resources.of_kind(kind), 'lab', name)
                operator.run()
                self.assertEqual(('True', 'ServiceReady'),
                                 conditions(there)['Ready'])

    def test_state_of_a_type_that_others_fill_in(self):
        there = begun(bodies.body())
        there.add({'kind': 'Secret', 'metadata': {
            'name': 'vm-bmc-state', 'namespace': 'lab'},
            'type': 'kubernetes.io/service-account-token'})
        Operator(there).run()
        self.assertEqual(('False', 'NameTaken'),
                         conditions(there)['BMCEmulatorReady'])
        self.assertEqual([], there.of('Deployment'))

    def test_refused(self):
        there = begun(bodies.body())
        there.faults.append(lambda verb, kind, name: (
            errors.AccessDenied('may not') if (verb, kind) == (
                'create', 'Role') else None))
        operator = Operator(there)
        for _ in range(2):
            operator.see()
            self.assertRaises(workqueue.Failure, asyncio.run,
                              operator.reconciler.reconcile(KEY))
        self.assertEqual(('False', 'Refused'),
                         conditions(there)['BMCEmulatorReady'])
        self.assertEqual([], there.of('Deployment'))
        there.faults.clear()
        operator.run()
        self.assertEqual(('True', 'ServiceReady'), conditions(there)['Ready'])

    def test_an_authority_that_cannot_be_used(self):
        there = begun(bodies.body())
        there.add({'kind': 'Secret', 'data': {}, 'metadata': {
            'name': naming.AUTHORITY, 'namespace': 'system'}})
        operator = Operator(there)
        self.assertRaises(workqueue.Failure, asyncio.run,
                          operator.reconciler.reconcile(KEY))
        self.assertEqual(('False', 'Refused'),
                         conditions(there)['EndpointReady'])
        there.remove('Secret', 'system', naming.AUTHORITY)
        operator.run()
        self.assertEqual(('True', 'ServiceReady'), conditions(there)['Ready'])

    def test_a_namespace_on_its_way_out_is_no_complaint(self):
        there = begun(bodies.body())
        there.faults.append(lambda verb, kind, name: (
            errors.NamespaceTerminating('it goes') if verb == 'create'
            else None))
        with self.assertNoLogs(level='WARNING'):
            self.assertRaises(
                workqueue.Failure, asyncio.run,
                Operator(there).reconciler.reconcile(KEY))
        self.assertNotIn('status', there.objects['VirtualMachineBMC', *KEY])

    def test_another_bmc_of_that_name_has_its_own_status(self):
        there = begun(bodies.body())
        body = there.objects['VirtualMachineBMC', *KEY]

        def another(verb, kind, name):
            if (verb, kind) == ('patch', 'VirtualMachineBMC'):
                there.faults.clear()
                there.objects['VirtualMachineBMC', *KEY] = {
                    **body, 'metadata': {**body['metadata'], 'uid': 'b'}}

        there.faults.append(another)
        operator = Operator(there)
        operator.see()
        self.assertRaises(workqueue.Failure, asyncio.run,
                          operator.reconciler.reconcile(KEY))
        self.assertEqual([], there.faults)
        self.assertNotIn('status', there.objects['VirtualMachineBMC', *KEY])

    def test_images_that_may_not_be_had(self):
        there = begun(bodies.body(image='lab.test/mine:1'))
        Operator(there, allowed_images=('lab.test/mine',)).run()
        there.change('VirtualMachineBMC', *KEY, fields(image='evil.test/a'))
        operator = Operator(there, allowed_images=('lab.test/mine',))
        operator.run()
        self.assertEqual(('False', 'ImageNotAllowed'),
                         conditions(there)['BMCEmulatorReady'])
        self.assertEqual({'lab.test/mine:1'}, set(deployments.images(
            there.objects['Deployment', 'lab', 'node-virtbmc'])))
        # The operator is told to let nobody have it any more.
        Operator(there, allowed_images=('other',)).run()
        self.assertEqual([], there.of('Deployment'))

    def test_another_account_is_another_pod(self):
        there = begun(bodies.body())
        operator = Operator(there, max_unavailable=1)
        operator.run()
        # As if others were being upgraded: this need not wait.
        operator.rollout.update(('lab', 'other'), True)
        there.remove('ServiceAccount', 'lab', 'node-virtbmc')
        operator.run()
        self.assertEqual(
            there.objects['ServiceAccount', 'lab', 'node-virtbmc'][
                'metadata']['uid'],
            deployments.account(there.objects[
                'Deployment', 'lab', 'node-virtbmc']))

    def test_another_password_elsewhere(self):
        there = begun(bodies.elsewhere())
        operator = Operator(there)
        operator.run()
        for change in (
                lambda data: data.update(password='bmV3'),
                lambda data: data.update(role='UmVhZE9ubHk='),
                lambda data: data.pop('role')):
            there.change('Secret', 'far', 'key',
                         lambda obj: change(obj['data']))
            operator.run()
            self.assertEqual(
                there.objects['Secret', 'far', 'key']['data'],
                there.objects['Secret', 'lab', 'node-virtbmc-auth']['data'])

    def test_upgrade(self):
        there = begun(bodies.body())
        for name in ('two', 'three'):
            there.add({**bodies.body(), 'metadata': {
                'name': name, 'namespace': 'lab', 'uid': name,
                'generation': 1}})
        names = ('node', 'two', 'three')
        operator = Operator(there, image='virtbmc:1')
        for name in names:
            operator.run(('lab', name))

        def images():
            return [there.objects['Deployment', 'lab', name + '-virtbmc'][
                'spec']['template']['spec']['containers'][0]['image']
                for name in names]
        self.assertEqual(['virtbmc:1'] * 3, images())
        # None gets ready with the new one.
        put = there._put

        def unready(obj):
            obj = put(obj)
            if obj['kind'] == 'Deployment':
                obj['status']['readyReplicas'] = 0
            return obj
        there._put = unready
        operator = Operator(there, image='virtbmc:2', max_unavailable=1)
        for name in names:
            operator.run(('lab', name))
        self.assertEqual(['virtbmc:2', 'virtbmc:1', 'virtbmc:1'], images())
        self.assertEqual(('True', 'RolloutWaiting'),
                         conditions(there, 'two')['BMCEmulatorReady'])
        # Who changes the spec need not wait.
        there.change('VirtualMachineBMC', 'lab', 'three',
                     fields(runStrategy='Always'))
        operator.run(('lab', 'three'))
        self.assertEqual(['virtbmc:2', 'virtbmc:1', 'virtbmc:2'], images())
        # Another process counts the same.
        operator = Operator(there, image='virtbmc:2', max_unavailable=1)
        for name in names:
            operator.rollout.update(('lab', name), rollout.is_stopped(
                there.objects['Deployment', 'lab', name + '-virtbmc']))
        operator.run(('lab', 'two'))
        self.assertEqual(['virtbmc:2', 'virtbmc:1', 'virtbmc:2'], images())
        there._put = put
        there.change('Deployment', 'lab', 'node-virtbmc', lambda obj: None)
        operator.run(('lab', 'node'))
        self.assertEqual([('lab', 'two')], operator.woken)
        operator.run(('lab', 'two'))
        self.assertEqual(['virtbmc:2'] * 3, images())
        for one in there.of('Deployment'):
            self.assertNotIn(naming.UPGRADING, one['metadata']['annotations'])

    def test_one_that_does_not_work_keeps_no_turn(self):
        there = begun(bodies.body())
        there.add({**bodies.body(), 'metadata': {
            'name': 'two', 'namespace': 'lab', 'uid': 'two',
            'generation': 1}})
        put = there._put

        def unready(obj):
            obj = put(obj)
            if obj['metadata']['name'] == 'node-virtbmc' and obj[
                    'kind'] == 'Deployment':
                obj['status']['readyReplicas'] = 0
            return obj
        # On a node that there is not, say.
        there._put = unready
        for image in ('virtbmc:1', 'virtbmc:2'):
            operator = Operator(there, image=image, max_unavailable=1)
            for name in ('node', 'two'):
                operator.run(('lab', name))
            self.assertEqual({(image,)}, {
                tuple(set(deployments.images(one))) for one in there.of(
                    'Deployment')})
        for one in there.of('Deployment'):
            self.assertNotIn(naming.UPGRADING, one['metadata']['annotations'])
