# SPDX-License-Identifier: Apache-2.0

from concurrent import futures
import copy
import datetime
import threading
import time
import types

import fixtures
from oslotest import base

from sushy_kubevirt.bmc import cleared_log
from sushy_kubevirt.bmc import event_log
from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import vm_state
from tests.unit.bmc import fake_state

BORN = '2026-11-01T09:00:00Z'


class Events:
    """Fake Kubernetes client with Events."""

    def __init__(self):
        self.version = 100
        self.kept = {}

    def create(self, resource, namespace, body):
        assert resource is api_resources.EVENT
        self.put(body)

    def put(self, event):
        self.version += 1
        event = copy.deepcopy(event)
        event['metadata']['resourceVersion'] = str(self.version)
        self.kept[event['metadata']['name']] = event

    def pages(self, resource, namespace, field_selector):
        wanted = dict(part.split('=') for part in field_selector.split(','))
        # In random order, as far as a client can tell.
        found = [event for _, event in sorted(
            self.kept.items(), key=lambda item: hash(item[0]))
            if wanted.items() <= {'type': event.get('type'), **{
                'involvedObject.' + field: value for field, value
                in event['involvedObject'].items()}}.items()]
        yield copy.deepcopy(found), str(self.version)


class Machine:
    namespace, name, uid = 'default', 'vm', 'uid-1'
    qualified_name = 'default/vm'
    vmi = None

    def state(self):
        return vm_state.VmState(
            {'metadata': {'creationTimestamp': BORN}}, self.vmi)

    def medium(self, device):
        return None


def other(name, second=5, count=1, **fields):
    """Make an Event of KubeVirt."""
    when = f'2026-11-01T10:00:{second:02}Z'
    return {'metadata': {'name': name, 'namespace': 'default'},
            'involvedObject': {'kind': 'VirtualMachineInstance',
                               'name': 'vm', 'namespace': 'default'},
            'reason': name, 'message': 'text', 'type': 'Normal',
            'source': {'component': 'virt-handler'}, 'count': count,
            'firstTimestamp': when, 'lastTimestamp': when, **fields}


def record(text, time='2026-11-01T10:00:05.123+00:00'):
    """Make what the dispatcher logs."""
    return types.SimpleNamespace(
        id=text, time=time, message_id='A.1.0.' + text, key=text, args=(text,),
        text=text, severity='OK', origin='', uid=Machine.uid,
        system='default/vm')


class WriterTestCase(base.BaseTestCase):

    def test_flood_of_one_log(self):
        writer = event_log.Writer()
        self.addCleanup(writer.close)
        going_on, done = threading.Event(), threading.Event()
        written = []

        def flooded(one):
            going_on.wait()
            written.append(one.text)

        def other(one):
            written.append(one.text)
            done.set()
        for number in range(1500):
            writer.put(flooded, record(f'F{number}'))
        writer.put(other, record('O'))
        going_on.set()
        self.assertTrue(done.wait(60))
        self.assertIn('O', written[:3])


class LogTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client, self.state = Events(), fake_state.State()
        self.log = self.new_log()
        self.machine = Machine()

    def new_log(self):
        cluster = types.SimpleNamespace(
            client=self.client, options=options.Options(), vm=None,
            closing=threading.Event())
        return event_log.Log(cluster, self.state)

    def entries(self):
        return self.log.entries(self.machine, fresh_seconds=0)

    def reasons(self, log=None):
        return [entry.reason for entry in (log or self.log).entries(
            self.machine, fresh_seconds=0)]

    def test_own_events_have_what_kubernetes_requires(self):
        self.log._write(record('ü' * 1000))
        [event] = self.client.kept.values()
        self.assertEqual('2026-11-01T10:00:05.123000Z', event['eventTime'])
        self.assertEqual('2026-11-01T10:00:05Z', event['lastTimestamp'])
        self.assertTrue(event['action'])
        self.assertTrue(event['reportingInstance'])
        self.assertEqual(1024, len(event['message'].encode()))
        [entry] = self.entries()
        self.assertEqual('2026-11-01T10:00:05.123000Z', entry.created)

    def test_warnings_about_the_pod_of_the_vmi(self):
        for name, pod, type_ in (('Pulled', 'pod-1', 'Normal'),
                                 ('InspectFailed', 'pod-1', 'Warning'),
                                 ('FailedMount', 'pod-2', 'Warning')):
            self.client.put(other(name, type=type_, involvedObject={
                'kind': 'Pod', 'name': 'virt-launcher-vm-x', 'uid': pod}))
        self.assertEqual([], self.reasons())
        self.machine.vmi = {'status': {'activePods': {'pod-1': ''}}}
        self.assertEqual(['InspectFailed'], self.reasons())
        self.machine.vmi['status']['phaseTransitionTimestamps'] = [
            {'phase': 'Running'}]
        for phase in 'Running', 'Succeeded', 'Failed':
            self.machine.vmi['status']['phase'] = phase
            self.assertEqual([], self.reasons())

    def test_order_within_a_second(self):
        """Own events by their time, others as they were stored."""
        names = [f'E{number}' for number in range(30)]
        for name in names:
            self.client.put(other(name))
        own = [f'O{number}' for number in range(30)]
        for number, name in enumerate(own):
            self.log._write(record(
                name, f'2026-11-01T10:00:05.{number + 1:03}+00:00'))
        for number in range(2):
            # A worker that leads now, with an event that it saw before.
            self.log._write(record(
                f'L{number}', f'2026-11-01T10:00:04.00{number}+00:00'))
        self.assertEqual(['L0', 'L1', *names, *own], self.reasons())
        self.assertEqual(['L0', 'L1', *names, *own], self.reasons())

    def crash(self, second, uid='u0'):
        self.client.put(other(
            'crash-' + uid, second, reason='Stopped', type='Warning',
            message='The VirtualMachineInstance crashed.', involvedObject={
                'kind': 'VirtualMachineInstance', 'name': 'vm',
                'namespace': 'default', 'uid': uid}))

    def stopping(self, second, uid='u0'):
        self.client.put(other(
            'stopping-' + uid, second, reason='Deleted',
            message='VirtualMachineInstance stopping', involvedObject={
                'kind': 'VirtualMachineInstance', 'name': 'vm',
                'namespace': 'default', 'uid': uid}))

    def deleted(self, second, uid='u0'):
        self.client.put(other(
            'deleted-' + uid, second, reason='SuccessfulDelete',
            message='Stopped the virtual machine by deleting the virtual '
            f'machine instance {uid}', involvedObject={
                'kind': 'VirtualMachine', 'name': 'vm',
                'namespace': 'default', 'uid': Machine.uid}))

    def assert_crashes(self, severities):
        self.assertEqual(severities, [
            entry.severity for entry in self.entries()
            if entry.reason == 'Stopped'])

    def test_end_of_a_guest_on_request_is_no_crash(self):
        # In the same second, with the node's clock behind.
        self.deleted(5, 'forced')
        self.stopping(4, 'forced')
        self.crash(4, 'forced')
        # Before its guest ran.
        self.deleted(6, 'early')
        self.crash(7, 'early')
        self.assert_crashes(['OK', 'OK'])
        for entry in self.entries():
            self.assertNotIn('crashed', entry.text + str(entry.args))

    def test_crash(self):
        self.crash(5, 'of-another')
        self.stopping(5)
        # virt-controller deletes its VMI then.
        self.crash(8, 'crashed')
        self.deleted(8, 'crashed')
        self.crash(9, 'again')
        self.deleted(10, 'again')
        # virt-handler ends a guest whose migration failed, for example.
        self.stopping(11, 'irrecoverable')
        self.crash(11, 'irrecoverable')
        self.assert_crashes(['Warning'] * 4)
        self.assertIn('crashed', self.entries()[0].text)

    def test_end_on_request_after_the_log_was_cleared(self):
        self.deleted(5, 'u0')
        self.log.clear(self.machine)
        self.crash(7)
        self.assert_crashes(['OK'])

    def test_repeated_event_moves_to_the_end(self):
        for name in ('A', 'B'):
            self.client.put(other(name))
        self.client.put(other('A', count=2))
        self.assertEqual(['B', 'A'], self.reasons())
        entry = self.entries()[1]
        self.assertEqual((2, 'virt-handler (A): text (2 times)'),
                         (entry.occurrences, entry.text))

    def test_clear_hides_all_events_of_before(self):
        """Whatever their time, and also in the same second."""
        self.client.put(other('A'))
        self.client.put(other('Repeated'))
        # Of a node whose clock is ahead.
        self.client.put(other('Ahead', lastTimestamp='2126-01-01T00:00:00Z'))
        self.log._write(record('Own'))
        self.log.clear(self.machine)
        for log in (self.log, self.new_log()):
            self.assertEqual([], self.reasons(log))
        # Of a node whose clock is behind; the same second as `A`.
        self.client.put(other('B'))
        self.client.put(other('Repeated', count=2))
        self.assertEqual(['B', 'Repeated'], self.reasons())
        self.log.clear(self.machine)
        self.assertEqual([], self.reasons())
        # None was deleted.
        self.assertEqual(5, len(self.client.kept))

    def test_clear_hides_own_event_that_was_not_written_yet(self):
        self.log.clear(self.machine)
        at = self.log.erased_at(self.machine)
        for name, seconds in (('Before', at - 0.01), ('After', at + 0.01)):
            self.client.put(other(
                name, reportingInstance=event_log.host(), lastTimestamp=None,
                eventTime=iso(seconds)))
        # Another host may have another clock.
        self.client.put(other('Other', reportingInstance='elsewhere'))
        self.assertEqual(['Other', 'After'], self.reasons())

    def test_new_events_after_a_restored_backup_are_visible(self):
        self.client.put(other('Old', second=1))
        self.log.clear(self.machine)
        self.client.version = 10
        self.client.put(other('New', lastTimestamp='2126-01-01T00:00:00Z'))
        self.assertEqual(['New'], self.reasons())

    def test_clear_of_one_machine(self):
        self.client.put(other('A'))
        self.log.clear(self.machine)
        self.machine.uid = 'uid-2'
        self.assertEqual(['A'], self.reasons())

    def test_an_older_clear_does_not_undo_a_newer_one(self):
        self.client.put(other('A'))
        pages = list(self.log._pages(self.machine))
        self.client.put(other('B'))
        self.log.clear(self.machine)
        cleared_log.ClearedLogs(self.state).clear(
            self.machine, 1.0, 'host', pages)
        self.assertEqual([], self.reasons())

    def test_delete_hides_an_entry_until_it_occurs_again(self):
        for name in 'A', 'B', 'C':
            self.client.put(other(name))
        self.log.clear(self.machine)
        for name in 'B', 'D', 'E':
            self.client.put(other(name, count=2))
        before = self.log.erased_at(self.machine)
        for name in 'B', 'E', 'gone':
            self.log.delete(self.machine, name)
        self.assertLess(before, self.log.erased_at(self.machine))
        for log in self.log, self.new_log():
            self.assertEqual(['D'], self.reasons(log))
        self.client.put(other('B', count=3))
        self.assertEqual(['B', 'D'], sorted(self.reasons()))
        # What Kubernetes has deleted is forgotten, and so is what was
        # deleted before the log was cleared.
        del self.client.kept['E']
        self.log.delete(self.machine, 'D')
        self.assertEqual({'B', 'D'}, {*self.state.sections['log'][
            self.machine.uid]['deleted']})
        self.log.clear(self.machine)
        self.assertEqual({}, self.state.sections['log'][self.machine.uid][
            'deleted'])
        self.assertEqual([], self.reasons())

    def read_at_once(self, number):
        """Read in threads, while the first reading waits for the API.

        :returns: list of entries, or exceptions
        """
        began, go_on = threading.Event(), threading.Event()
        list_ = self.client.pages

        def pages(*args, **options):
            self.lists += 1
            began.set()
            go_on.wait(30)
            yield from list_(*args, **options)

        def read():
            try:
                return self.log.entries(self.machine)
            except errors.MachineError as exc:
                return exc

        self.lists = 0
        self.client.pages = pages
        waiting = threading.Semaphore(0)

        def hold(lock):
            waiting.release()
            return lock

        self.useFixture(fixtures.MockPatchObject(
            event_log.blocking, 'hold', hold))
        with futures.ThreadPoolExecutor(number) as pool:
            found = [pool.submit(read) for _ in range(number)]
            for event in (waiting,) * number:
                self.assertTrue(event.acquire(timeout=30))
            self.assertTrue(began.wait(30))
            go_on.set()
            return [one.result(timeout=30) for one in found]

    def test_requests_at_once_share_a_reading(self):
        self.client.put(other('A'))
        for entries in self.read_at_once(20):
            self.assertEqual(['A'], [one.reason for one in entries])
        # The first has begun before the others came.
        self.assertEqual(2, self.lists)

    def test_log_of_another_machine_drops_no_slow_reading(self):
        another, list_ = Machine(), self.client.pages
        another.uid = 'uid-2'
        monotonic, late, within = time.monotonic, [], []
        self.useFixture(fixtures.MockPatchObject(
            event_log.time, 'monotonic', lambda: monotonic() + sum(late)))

        def pages(*args, **options):
            if not within:
                late.append(event_log.FRESH_SECONDS + 1)
                within.append(another)
                self.log.entries(another)
                within.clear()
            yield from list_(*args, **options)

        self.client.pages = pages
        self.read_at_once(20)
        # Two readings of each log.
        self.assertEqual(4, self.lists)

    def test_requests_at_once_share_a_failure(self):
        def fail(*args, **options):
            raise errors.Unavailable('away')
            yield

        self.client.pages = fail
        for failure in self.read_at_once(20):
            self.assertIsInstance(failure, errors.Unavailable)
        self.assertEqual(2, self.lists)

    def test_change_during_a_reading_is_shown_by_the_next(self):
        for name in 'A', 'B':
            self.client.put(other(name))
        list_ = self.client.pages
        for change, shown in (
                (lambda log: log._write(record('C')), ['A', 'B', 'C']),
                (lambda log: log.delete(self.machine, 'A'), ['B', 'C']),
                (lambda log: log.clear(self.machine), [])):
            log = self.new_log()

            def pages(*args, change=change, log=log, **fields):
                listed = list(list_(*args, **fields))
                self.client.pages = list_
                change(log)
                yield from listed

            self.client.pages = pages
            log.entries(self.machine)
            self.assertEqual(shown, [
                entry.reason for entry in log.entries(self.machine)])

    def test_number_of_deleted_entries_is_bounded(self):
        self.useFixture(fixtures.MockPatchObject(
            cleared_log, 'MAX_DELETED', 2))
        for name in 'A', 'B', 'C':
            self.client.put(other(name))
        for name in 'A', 'B':
            self.log.delete(self.machine, name)
        error = self.assertRaises(errors.Rejected, self.log.delete,
                                  self.machine, 'C')
        self.assertIn('clear the log', str(error))
        self.assertEqual(['C'], self.reasons())

    def test_deleted_entries_leave_room_for_cleared_logs(self):
        self.client.put(other('A'))
        self.useFixture(fixtures.MockPatchObject(
            cleared_log, 'MAX_LENGTH', 50))
        error = self.assertRaises(errors.Rejected, self.log.delete,
                                  self.machine, 'A')
        self.assertIn('clear the logs', str(error))
        self.log.clear(self.machine)
        self.assertEqual([], self.reasons())

    def test_section_is_bounded_and_survives_invalid_values(self):
        self.state.sections['log'] = {
            f'uid-{number}': {'at': number, 'host': '', 'version': 1,
                              'latest': 1}
            for number in range(2, cleared_log.MAX_MACHINES + 2)}
        self.state.sections['log']['broken'] = ['?']
        self.client.put(other('A'))
        self.log.clear(self.machine)
        section = self.state.sections['log']
        self.assertEqual(cleared_log.MAX_MACHINES, len(section))
        self.assertIn(self.machine.uid, section)
        self.assertNotIn('broken', section)
        self.assertNotIn('uid-2', section)
        section[self.machine.uid] = {'at': 'x'}
        self.assertEqual(['A'], self.reasons())

    def test_a_change_of_the_state_drops_cached_entries(self):
        log = self.new_log()

        def reasons():
            return [entry.reason for entry in log.entries(self.machine, 1000)]

        self.client.put(other('A'))
        self.assertEqual(['A'], reasons())
        self.log.clear(self.machine)
        self.assertEqual(['A'], reasons())
        # Another caller wants what there is now, and keeps it itself.
        self.assertEqual([], self.reasons(log))
        self.assertEqual(['A'], reasons())
        self.state.changed()
        self.assertEqual([], reasons())

    def test_add(self):
        names = {self.log.add(self.machine, event_registry.SEL_ENTRY,
                              ('default/vm', '02'), b'\x02') for _ in 'ab'}
        self.assertEqual(2, len(names))
        entry = self.entries()[0]
        self.assertIn(entry.id, names)
        self.assertEqual(b'\x02', entry.raw)
        self.assertEqual(('default/vm', '02'), entry.args)


def iso(seconds):
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).isoformat()
