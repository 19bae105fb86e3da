# SPDX-License-Identifier: Apache-2.0
from concurrent import futures
import dataclasses
import threading
import time
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster.ironic import states
from sushy_kubevirt.cluster.ironic import teardown
from sushy_kubevirt.cluster import problems
from tests.fixtures import steps
from tests.unit.cluster import declared


class IronicTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(states, '_INTERVAL', 0.001))
        self.ironic = declared.FakeIronic()
        self.reports = steps.Steps()

    def enrolment(self, *wanted, **options):
        return provision.Enrolment(
            self.ironic, declared.OWNER, wanted,
            lines=self.reports, **options)

    def apply(self, *wanted):
        self.ironic.writes.clear()
        return self.enrolment(*wanted).apply()

    def node(self):
        node, = self.ironic.objects['nodes'].values()
        return node


class EnrolmentTestCase(IronicTestCase):

    def test_new_nodes(self):
        wanted = declared.wanted(traits=('CUSTOM_A',))
        self.assertEqual([provision.Result('tk0', 'create')],
                         self.enrolment(wanted).plan())
        self.assertEqual([], self.ironic.writes)
        result, = self.apply(wanted)
        self.assertEqual(provision.Result(
            'tk0', 'create', state='available'), result)
        self.assertEqual([
            ('create', 'nodes', 'tk0'), ('traits', 'uuid-0', ['CUSTOM_A']),
            ('create', 'ports', '52:54:00:00:00:00'),
            ('provision', 'uuid-0', 'manage'),
            ('provision', 'uuid-0', 'provide')], self.ironic.writes)
        self.assertEqual(
            ['create', 'change', 'create port', 'manage', 'provide',
             'available'], [words[1] for words in self.reports])
        result, = self.apply(wanted)
        self.assertEqual('unchanged', result.action)
        self.assertEqual([], self.ironic.writes)

    def test_inspection(self):
        wanted = declared.wanted(inspect=True,
                                 properties={'memory_mb': 1024})
        self.apply(wanted)
        self.assertEqual(
            ['manage', 'inspect', 'provide'],
            [one[2] for one in self.ironic.writes if one[0] == 'provision'])
        self.assertEqual(1024, self.node()['properties']['memory_mb'])
        self.apply(wanted)
        self.assertEqual([], self.ironic.writes)
        self.apply(dataclasses.replace(wanted, vm='recreated'))
        self.assertEqual(
            ['manage', 'inspect', 'provide'],
            [one[2] for one in self.ironic.writes if one[0] == 'provision'])

    def test_owner_is_set_after_creation(self):
        wanted = declared.wanted(networks=(), attributes={'owner': 'o'})
        self.apply(wanted)
        self.assertEqual(('change', 'nodes', 'uuid-0', ['/owner']),
                         self.ironic.writes[1])
        self.apply(wanted)
        self.assertEqual([], self.ironic.writes)

    def test_manageable_only(self):
        wanted = declared.wanted(provide=False)
        self.assertEqual('manageable', self.apply(wanted)[0].state)
        self.assertEqual('available', self.apply(declared.wanted())[0].state)
        self.assertEqual('manage', self.enrolment(wanted).plan()[0].action)
        self.assertEqual('manageable', self.apply(wanted)[0].state)

    def test_continues_after_every_interruption(self):
        wanted = declared.wanted(traits=('CUSTOM_A',), port_group={
            'mode': '802.3ad'})
        self.apply(wanted)
        complete = len(self.ironic.writes)
        self.assertEqual(6, complete)
        for survived in range(complete):
            self.ironic = declared.FakeIronic()
            real = self.ironic.writes
            self.ironic.writes = Limited(survived)
            self.assertRaises(Killed, self.apply_uncleared, wanted)
            self.ironic.writes = real
            result, = self.apply(wanted)
            self.assertEqual('available', result.state)
            self.apply(wanted)
            self.assertEqual([], self.ironic.writes)

    def apply_uncleared(self, wanted):
        return self.enrolment(wanted).apply()

    def test_failing_nodes_do_not_stop_others(self):
        self.ironic.errors['tk0', 'manage'] = (
            'cannot log in with s3cret-one')
        self.ironic.errors['tk1', 'provide'] = problems.ServiceError('no', 400)
        results = self.apply(*(declared.wanted(f'tk{index}', vm=f'vm{index}',
                                               networks=())
                               for index in range(3)))
        self.assertEqual(
            [('failed', 'manage: enroll: cannot log in with ***'),
             ('failed', 'no'), ('create', None)],
            [(one.action, one.error) for one in results])
        self.assertIn(('tk1', 'failed', 'no'), self.reports)
        self.ironic.errors.clear()
        self.assertEqual(
            ['available'] * 3,
            [one.state for one in self.apply(*(
                declared.wanted(f'tk{index}', vm=f'vm{index}', networks=())
                for index in range(3)))])

    def test_sqlite_was_busy(self):
        """Ironic gives that as ``last_error``; the node is told again."""
        self.ironic.errors['tk0', 'manage'] = (
            '(sqlite3.OperationalError) database is locked')
        provide = self.ironic.provision

        def told(uuid, verb):
            provide(uuid, verb)
            self.ironic.errors.clear()
        self.useFixture(fixtures.MockPatchObject(
            self.ironic, 'provision', told))
        result, = self.apply(declared.wanted(networks=()))
        self.assertEqual(('available', None), (result.state, result.error))
        self.assertEqual(2, self.reports.count(('tk0', 'manage')))

    def test_advice(self):
        bmc = dataclasses.replace(declared.BMC, authority='tk0-virtbmc-ca')
        for reason, advice in (
                ('[SSL: CERTIFICATE_VERIFY_FAILED] expired',
                 'ca.crt in the ConfigMap tk0-virtbmc-ca'),
                ('Max retries exceeded with url: /',
                 'have to reach 10.96.0.7')):
            self.ironic.errors['tk0', 'manage'] = reason
            result, = self.apply(declared.wanted(bmc=bmc, networks=()))
            self.assertIn(advice, result.error)

    def test_parallel_nodes_are_bounded(self):
        found, active, lock = [], set(), threading.Lock()
        together = threading.Barrier(3)
        create = self.ironic.create

        def created(kind, body):
            with lock:
                active.add(body['name'])
                found.append(len(active))
            together.wait(30)
            time.sleep(0.05)    # A fourth would come meanwhile.
            try:
                with lock:
                    return create(kind, body)
            finally:
                with lock:
                    active.discard(body['name'])
        self.useFixture(fixtures.MockPatchObject(
            self.ironic, 'create', created))
        self.enrolment(*(declared.wanted(f'tk{index}', vm=f'vm{index}',
                                         networks=())
                         for index in range(12)), parallel=3).apply()
        self.assertEqual((12, 3), (len(found), max(found)))

    def test_ports_of_available_nodes_change_in_maintenance(self):
        self.apply(declared.wanted())
        self.apply(declared.wanted(pxe_networks=()))
        self.assertEqual([
            ('maintenance', 'uuid-0', True),
            ('change', 'ports', 'ports-0', ['/pxe_enabled']),
            ('maintenance', 'uuid-0', False)], self.ironic.writes)

    def test_maintenance_of_an_interrupted_run_ends(self):
        self.apply(declared.wanted())
        self.ironic.set_maintenance('uuid-0', provision.MAINTENANCE)
        self.assertEqual(('maintenance',), self.enrolment(
            declared.wanted()).plan()[0].changed)
        self.apply(declared.wanted())
        self.assertFalse(self.node()['maintenance'])

    def test_maintenance_of_others_stays(self):
        self.apply(declared.wanted())
        self.ironic.set_maintenance('uuid-0', 'a user works on it')
        self.apply(declared.wanted(pxe_networks=()))
        self.assertEqual('a user works on it',
                         self.node()['maintenance_reason'])

    def test_failed_cleaning_is_tried_again(self):
        self.apply(declared.wanted())
        self.node().update(provision_state='clean failed', maintenance=True,
                           fault='clean failure', last_error='gone')
        self.assertEqual('available', self.apply(declared.wanted())[0].state)
        self.assertFalse(self.node()['maintenance'])

    def test_nodes_in_use_are_left_alone(self):
        self.apply(declared.wanted())
        self.node().update(provision_state='active', instance_uuid='i')
        result, = self.apply(declared.wanted(
            pxe_networks=(), resource_class='other'))
        self.assertEqual(provision.Result(
            'tk0', 'unchanged', deferred=('resource_class', 'ports'),
            state='active'), result)
        self.assertEqual([], self.ironic.writes)

    def test_names_of_others(self):
        self.apply(declared.wanted())
        self.node()['extra'] = {}
        result, = self.apply(declared.wanted())
        self.assertEqual('failed', result.action)
        self.assertEqual([], self.ironic.writes)

    def test_surplus(self):
        self.apply(declared.wanted(), declared.wanted('tk1', vm='vm1'))
        self.assertEqual(['tk1'], [one['name'] for one in self.enrolment(
            declared.wanted()).surplus])

    def test_waits_for_busy_nodes(self):
        self.apply(declared.wanted())
        self.node()['provision_state'] = 'cleaning'
        listed = self.ironic.list

        def finishing(kind, fields):
            answer = listed(kind, fields)
            if fields is states._FIELDS:
                self.node()['provision_state'] = 'manageable'
            return answer
        with mock.patch.object(self.ironic, 'list', finishing):
            result, = self.apply(declared.wanted())
        self.assertEqual('available', result.state)

    def test_time_is_limited(self):
        self.apply(declared.wanted())
        self.node()['provision_state'] = 'cleaning'
        result, = self.enrolment(declared.wanted(), timeout=0.05).apply()
        self.assertEqual('still cleaning after 0.05 s', result.error)

    def test_time_is_limited_while_ironic_does_not_answer(self):
        over = threading.Event()

        def refused(*_arguments):
            over.wait(30)
            raise problems.ServiceError('away')

        with mock.patch.object(self.ironic, 'list', refused), \
                states.Watcher(self.ironic, 0.1) as watcher, \
                futures.ThreadPoolExecutor(2) as pool:
            waits = [pool.submit(watcher.settled, 'uuid') for _ in range(2)]
            # One lists, the other waits for it.
            futures.wait(waits, 20, futures.FIRST_COMPLETED)
            over.set()
            for wait in waits:
                self.assertEqual('still unknown after 0.1 s',
                                 str(wait.exception()))

    def test_passwords_are_not_in_reasons(self):
        for method in 'create', 'change':
            wanted = declared.wanted(resource_class=method)
            with mock.patch.object(
                    self.ironic, method, side_effect=problems.ServiceError(
                        'Ironic refuses {"value": "s3cret-one"}', 400)):
                result, = self.apply(wanted)
                self.assertEqual('Ironic refuses {"value": "***"}',
                                 result.error)
            self.apply(wanted)
        self.assertNotIn('s3cret-one', str(self.reports))


class Killed(BaseException):
    pass


class Limited(list):
    """Writes of a process that is killed at one of them."""

    def __init__(self, survived):
        super().__init__()
        self.survived = survived

    def append(self, one):
        if len(self) == self.survived:
            raise Killed()
        super().append(one)


class TeardownTestCase(IronicTestCase):

    def setUp(self):
        super().setUp()
        self.apply(declared.wanted(), declared.wanted('tk1', vm='vm1'))
        self.found = self.ironic.objects['nodes']
        self.ironic.writes.clear()

    def owned(self):
        return nodes.owned(
            self.ironic.list('nodes', nodes.FIELDS), declared.OWNER)

    def remove(self, **options):
        return teardown.remove(
            self.ironic, self.owned(),
            lines=self.reports, **options)

    def test_deletes_all(self):
        foreign = declared.existing(nodes.creation(
            declared.wanted('x'), 'lab/other/uid', {}), 'foreign')
        self.found['foreign'] = foreign
        self.assertEqual(['delete', 'delete'],
                         [one.action for one in self.remove()])
        self.assertEqual(['foreign'], list(self.found))
        self.assertEqual([], self.remove())

    def test_instances_are_kept_without_force(self):
        self.found['uuid-1'].update(provision_state='active',
                                    instance_uuid='i')
        error = self.assertRaises(problems.NodesInUse, self.remove)
        self.assertEqual(('tk1',), error.names)
        self.assertEqual([], self.ironic.writes)
        self.remove(force=True)
        self.assertEqual({}, self.found)
        self.assertIn(('provision', 'uuid-1', 'deleted'), self.ironic.writes)

    def test_node_that_cannot_be_undeployed_is_deleted_by_force(self):
        self.found['uuid-1'].update(provision_state='deploying',
                                    instance_uuid='i')
        self.ironic.errors['tk1', 'deleted'] = problems.ServiceError('no', 400)
        self.remove(force=True)
        self.assertEqual({}, self.found)

    def test_instance_that_came_meanwhile(self):
        owned = self.owned()
        self.found['uuid-0']['instance_uuid'] = 'i'
        first, second = teardown.remove(self.ironic, owned)
        self.assertIn('tk0', first.error)
        self.assertEqual('delete', second.action)
        self.assertFalse(self.found['uuid-0']['maintenance'])
