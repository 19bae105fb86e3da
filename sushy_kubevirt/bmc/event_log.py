# SPDX-License-Identifier: Apache-2.0
"""The log of a machine: Kubernetes Events about it, including our own.

Entries are not stored here. Kubernetes keeps the Events of KubeVirt and CDI
about a VM, its VMI and its media for a limited time (one hour by default), and
those of the scheduler and the kubelet about the launcher's pod. Of the latter
warnings are shown until the guest runs: for what keeps a pod from starting,
KubeVirt often sets no condition, but what a node has repeated with success is
no finding.
The event service adds each Redfish event as an Event whose name is derived
from the event's id, so that repeated writes have no effect. Entries are read
from the API.

Clearing the log and deleting an entry delete no Event: those of other
components must stay, and deleting would need a right that cannot be limited to
a VM. `cleared_log` hides them.
"""

from __future__ import annotations

import collections
from collections import abc
import datetime
import json
import logging
import math
import operator
import socket
import threading
import time
import typing
import weakref

from sushy_kubevirt.bmc import cleared_log
from sushy_kubevirt.bmc import clock
from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.bmc import log_record
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import blocking
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import vm_state

if typing.TYPE_CHECKING:
    from sushy_kubevirt.bmc import state_secret
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.machine import cluster
    from sushy_kubevirt.machine import machine

LOG = logging.getLogger(__name__)

COMPONENT = 'sushy-kubevirt'
#: Largest number of entries of a log; older ones are not shown.
MAX_ENTRIES = 1000

#: Seconds for which entries are cached: clients read a collection and then
#: each of its entries.
FRESH_SECONDS = 2.0

#: Seconds without writes after the API denied one.
PAUSE_SECONDS = 60.0

_SEVERITIES = ('OK', 'Warning', 'Critical')

#: Largest number of records of a log that wait to be written.
_MAX_QUEUE = 1000

#: Largest number of bytes of a Kubernetes Event's message, and of the name of
#: the reporting host (validation/events.go of Kubernetes 1.36).
_MAX_MESSAGE = 1024
_MAX_INSTANCE = 128
_KINDS = (api_resources.VM.kind, api_resources.VMI.kind, 'DataVolume',
          'PersistentVolumeClaim')


class Entry(typing.NamedTuple):
    """An entry of a log.

    :param id: name of the Kubernetes Event
    :param created: time of the (last) occurrence, ISO 8601
    :param seconds: the same in seconds since the epoch, with fraction
    :param severity: ``OK``, ``Warning`` or ``Critical``
    :param text: the message
    :param by: the reporting component, such as ``virtualmachine-controller``
    :param reason: the Event's reason, one word
    :param message_id: MessageId; that of `event_registry.KUBERNETES` for
        Events of other components
    :param args: the message's arguments
    :param origin: path of the resource a Redfish event is about, else ''
    :param event: EventId of a Redfish event, else ''
    :param occurrences: how often it occurred
    :param raw: the SEL record that an IPMI client added, else b''
    """

    id: str
    created: str
    seconds: float
    severity: str
    text: str
    by: str
    reason: str
    message_id: str
    args: tuple[str, ...]
    origin: str = ''
    event: str = ''
    occurrences: int = 1
    raw: bytes = b''


class _Reading:
    # A reading that has begun. A change of the log meanwhile drops it, so that
    # what it returns is not kept.

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.entries: tuple[Entry, ...] | None = None
        self.error: errors.MachineError | None = None


class _Order(typing.NamedTuple):
    """Sorts Events by time, within a second by their order in the API.

    Most components do not distinguish times within a second.
    """

    seconds: float
    version: int
    name: str


class _Visible(typing.NamedTuple):
    order: _Order
    entry: Entry
    crashed: str | None         # uid of the VMI


class Writer:
    """A thread that writes the entries of logs in turn. Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        # Records that wait, by function; who has its turn next comes first.
        self._waiting: dict[abc.Callable[[log_record.Record], None],
                            collections.deque[log_record.Record]] = {}
        self._started = self._closed = False

    def put(self, write: abc.Callable[[log_record.Record], None],
            record: log_record.Record) -> None:
        """Call a function soon, in the thread, which the first call starts.

        :param write: function of the record, the same for all records of a
            log; must not raise
        """
        with self._condition:
            waiting = self._waiting.setdefault(write, collections.deque())
            if len(waiting) < _MAX_QUEUE:
                waiting.append(record)
                self._condition.notify()
                if not self._started:
                    self._started = True
                    threading.Thread(target=self._run, daemon=True,
                                     name='events-log').start()
                return
        LOG.info('%d events of %s wait to be logged; not logged: %s',
                 _MAX_QUEUE, record.system or 'the service', record.text)

    def close(self) -> None:
        """Stop the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: bool(self._waiting) or self._closed)
                if self._closed:
                    return
                write = next(iter(self._waiting))
                waiting = self._waiting.pop(write)
                record = waiting.popleft()
                if waiting:
                    self._waiting[write] = waiting
            write(record)


class Log:
    """The logs of all machines. Thread-safe.

    :param writer: one that others use too; None for one of its own
    """

    def __init__(self, cluster: cluster.Cluster,
                 state: state_secret.StateSecret,
                 writer: Writer | None = None) -> None:
        self._cluster = cluster
        self._writer = writer or Writer()
        self._owns_writer = writer is None
        self._cleared = cleared_log.ClearedLogs(state)
        self.clocks = clock.Clocks(state)
        self._pause_until = 0.0
        # All by the uid of a VM; the locks are those of who reads its log.
        self._read: dict[str, _Reading] = {}
        self._reading: weakref.WeakValueDictionary[str, threading.Lock] = (
            weakref.WeakValueDictionary())
        # Another process may have cleared a log.
        state.subscribe(lambda: self._read.clear())

    # Writing

    def record(self, record: log_record.Record) -> None:
        """Write an event to the log, in a background thread."""
        if not record.uid and not self._cluster.vm:
            return      # not about a VM
        self._writer.put(self._write_quietly, record)

    def add(self, machine: machine.Machine, message: event_registry.Message,
            args: abc.Sequence[str] = (), raw: bytes = b'',
            when: datetime.datetime | None = None) -> str:
        """Write an entry now.

        :param args: arguments of the message
        :param raw: the SEL record of an IPMI client
        :param when: when it happened, with a time zone; None for now
        :returns: id of the entry
        :raises: `errors.MachineError`
        """
        now = (when or datetime.datetime.now(
            datetime.timezone.utc)).isoformat()
        return self._write(log_record.make(
            message, args, time=now, uid=machine.uid,
            id=log_record.id_of(machine.uid, message.id, now, *args),
            system=machine.qualified_name), raw)

    def close(self) -> None:
        """Stop the background thread, unless others use it."""
        if self._owns_writer:
            self._writer.close()

    def _write_quietly(self, record: log_record.Record) -> None:
        if (self._cluster.closing.is_set()
                or time.monotonic() < self._pause_until):
            return
        try:
            self._write(record)
        except errors.AccessDenied as e:
            LOG.warning('Events are missing in the logs of the systems; '
                        'next try in %d s: %s', PAUSE_SECONDS, e)
            self._pause_until = time.monotonic() + PAUSE_SECONDS
        except errors.MachineError as e:
            LOG.info('Event %s of %s was not logged: %s', record.key,
                     record.system or 'the service', e)
        except Exception:
            LOG.exception('Event %s of %s was not logged', record.key,
                          record.system or 'the service')

    def _write(self, record: log_record.Record, raw: bytes = b'') -> str:
        """Create the Kubernetes Event of a record.

        :returns: its name
        :raises: `errors.MachineError`
        """
        body = self._event(record, raw)
        namespace = body['metadata']['namespace']

        def step() -> None:
            try:
                self._cluster.client.create(
                    api_resources.EVENT, namespace, body)
            except errors.Conflict:
                pass    # it exists already

        retry.run(step, self._cluster.options.write_deadline,
                  self._cluster.closing)
        self._read.pop(body['involvedObject']['uid'], None)
        return body['metadata']['name']

    def _event(self, record: log_record.Record, raw: bytes) -> objects.Json:
        if record.uid:
            namespace, name = record.system.split('/', 1)
            uid = record.uid
        else:       # of the service, which has one VM (`record`)
            machine = self._cluster.machine('/'.join(self._cluster.vm or ()))
            namespace, name, uid = (machine.namespace, machine.name,
                                    machine.uid)
        when = datetime.datetime.fromisoformat(record.time).astimezone(
            datetime.timezone.utc).replace(tzinfo=None)
        second = when.isoformat(timespec='seconds') + 'Z'
        ours = {'id': record.id, 'message': record.message_id,
                'args': record.args, 'severity': record.severity,
                'origin': record.origin}
        if raw:
            ours['raw'] = raw.hex()
        return {
            'apiVersion': api_resources.EVENT.api_version,
            'kind': api_resources.EVENT.kind,
            'metadata': {
                'name': f'{name}.{record.id}', 'namespace': namespace,
                'annotations': {stored_names.EVENT: json.dumps(ours)}},
            'involvedObject': {
                'apiVersion': api_resources.VM.api_version,
                'kind': api_resources.VM.kind, 'namespace': namespace,
                'name': name, 'uid': uid},
            'reason': record.key,
            'message': record.text.encode()[:_MAX_MESSAGE].decode(
                errors='ignore'),
            'type': 'Normal' if record.severity == 'OK' else 'Warning',
            'source': {'component': COMPONENT},
            # The time in microseconds. With it, Kubernetes requires an action
            # and the reporting instance.
            'eventTime': when.isoformat(timespec='microseconds') + 'Z',
            'action': record.key,
            'reportingComponent': COMPONENT,
            'reportingInstance': host(),
            'firstTimestamp': second, 'lastTimestamp': second, 'count': 1,
        }

    # Reading

    def entries(self, machine: machine.Machine,
                fresh_seconds: float = FRESH_SECONDS) -> tuple[Entry, ...]:
        """Read the log of a machine.

        Requests at the same time share one reading: Events are large.

        :param fresh_seconds: seconds for which entries are kept in memory; 0
            for a caller that keeps what it made of them
        :returns: oldest first
        :raises: `errors.MachineError`
        """
        known = self._read.get(machine.uid)
        now = time.monotonic()
        if (known is not None and known.entries is not None
                and now - known.began <= fresh_seconds):
            return known.entries
        with blocking.hold(self._reading.setdefault(
                machine.uid, threading.Lock())):
            # What was read since then shows what was written before.
            known = self._read.get(machine.uid)
            if known is not None and known.began >= now:
                if known.error is not None:
                    raise known.error
                if known.entries is not None:
                    return known.entries
            return self._read_entries(machine, fresh_seconds)

    def _read_entries(self, machine: machine.Machine,
                      fresh_seconds: float) -> tuple[Entry, ...]:
        reading = _Reading()
        if fresh_seconds:
            self._read[machine.uid] = reading
        try:
            cleared = self._cleared.of(machine)
            visible: list[_Visible] = []
            stops: dict[str, int] = {}
            for events, _ in self._pages(machine):
                # Only the entries are kept, as Events are large.
                for event in events:
                    stops.update(_stop(event))
                    if not cleared.hides(event):
                        entry = _ours(event) or _theirs(event)
                        visible.append(_Visible(
                            _Order(entry.seconds, cleared_log.version(event),
                                   entry.id), entry, _crashed(event)))
        except errors.MachineError as exc:
            reading.error = exc
            self._read[machine.uid] = reading
            raise
        visible.sort(key=operator.itemgetter(0))
        entries = tuple(
            _stopped(entry) if order.version > stops.get(vmi or '', math.inf)
            else entry for order, entry, vmi in visible[-MAX_ENTRIES:])
        for uid in [uid for uid, known in tuple(self._read.items())
                    if reading.began - known.began > FRESH_SECONDS
                    and uid not in self._reading]:
            self._read.pop(uid, None)
        reading.entries = entries
        return entries

    def clear(self, machine: machine.Machine) -> None:
        """Hide all entries that a machine's log has now.

        :raises: `errors.MachineError`
        """
        self._cleared.clear(machine, time.time(), host(),
                            self._pages(machine))
        self._read.pop(machine.uid, None)

    def delete(self, machine: machine.Machine, name: str) -> None:
        """Hide an entry until its Event occurs again.

        :param name: id of the entry
        :raises: `errors.MachineError`
        """
        self._cleared.delete(machine, name, time.time(), self._pages(machine))
        self._read.pop(machine.uid, None)

    def erased_at(self, machine: machine.Machine) -> float:
        """Return when a log was cleared, or an entry was deleted, last.

        :returns: seconds since the epoch, 0 for never; from the cache
        """
        cleared = self._cleared.cached(machine)
        return max(cleared.cleared_at, cleared.deleted_at)

    def _pages(self, machine: machine.Machine
               ) -> abc.Iterator[client.Page[objects.Json]]:
        """List the Events about a machine, its VMI, its pods and its media.

        :raises: `errors.MachineError`
        """
        state = machine.state()
        born = cleared_log.seconds(
            state.vm['metadata'].get('creationTimestamp'))
        names: dict[str, None] = {machine.name: None}     # in this order
        for device in media.DEVICES:
            medium = machine.medium(device.id)
            if medium is not None and medium.data_volume:
                names[medium.data_volume] = None
        for name in names:
            for items, version in self._cluster.client.pages(
                    api_resources.EVENT, machine.namespace,
                    field_selector='involvedObject.name=' + name):
                yield [event for event in items
                       if _is_about(event, machine, born)], version
        if state.vmi is None or vm_state.has_run(state.vmi):
            return
        for uid in (state.vmi.get('status') or {}).get('activePods') or ():
            for items, version in self._cluster.client.pages(
                    api_resources.EVENT, machine.namespace,
                    field_selector='type=Warning,involvedObject.uid=' + uid):
                yield [event for event in items
                       if event['involvedObject'].get('uid') == uid], version


def _is_about(event: objects.Json, machine: machine.Machine,
              born: float) -> bool:
    """Return whether an Event with a name of a machine is about it.

    :param born: when the VM was created, in seconds since the epoch
    """
    about = event.get('involvedObject') or {}
    if about.get('kind') == api_resources.VM.kind:
        return about.get('uid') == machine.uid
    # Not of a deleted VM of the same name.
    return about.get('kind') in _KINDS and cleared_log.when(event) >= born


def host() -> str:
    """Return the name of this host, by whose clock entries are dated.

    In a pod it is the pod's name.
    """
    return socket.gethostname()[:_MAX_INSTANCE] or COMPONENT


def _created(event: objects.Json) -> str:
    moment = datetime.datetime.fromtimestamp(
        cleared_log.when(event), datetime.timezone.utc).replace(tzinfo=None)
    return moment.isoformat() + 'Z'


def _ours(event: objects.Json) -> Entry | None:
    text = (event['metadata'].get('annotations') or {}).get(stored_names.EVENT)
    if text is None or event.get('reportingComponent') != COMPONENT:
        return None
    try:
        ours = json.loads(text)
        return Entry(
            id=event['metadata']['name'], created=_created(event),
            seconds=cleared_log.when(event),
            severity=ours['severity'] if ours['severity'] in _SEVERITIES
            else 'OK', text=event['message'], by=COMPONENT,
            reason=event['reason'], message_id=str(ours['message']),
            args=tuple(map(str, ours['args'])), origin=str(ours['origin']),
            event=str(ours['id']), raw=bytes.fromhex(ours.get('raw', '')))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None     # another client wrote an invalid annotation


def _stop(event: objects.Json) -> dict[str, int]:
    """Return which VMI is stopped on request, according to an Event.

    virt-controller records that it has deleted a VMI, which it also does
    after a crash (stopVMI in pkg/virt-controller/watch/vm/vm.go, KubeVirt
    1.9). That virt-handler is "stopping" a guest says less: it also ends
    guests that cannot continue, or whose node is drained.

    :returns: by the uid of the VMI: resourceVersion of Events after which its
        end is what was requested
    """
    message = event.get('message') or ''
    if (event.get('reason') == 'SuccessfulDelete'
            and 'virtual machine instance' in message):
        return {message.rpartition(' ')[2]: cleared_log.version(event)}
    return {}


def _crashed(event: objects.Json) -> str | None:
    """Return the uid of the VMI that crashed according to an Event, or None.

    virt-handler also says so of a guest that did not shut down within its
    grace period, which is 1 s in a forced restart
    (calculateVmPhaseForStatusReason in pkg/virt-handler/vm.go, KubeVirt 1.9).
    """
    if (event.get('reason') == 'Stopped'
            and event.get('message') == 'The VirtualMachineInstance crashed.'):
        return event['involvedObject'].get('uid')
    return None


def _stopped(entry: Entry) -> Entry:
    """Return the entry of a "crash" that was requested."""
    args = (*entry.args[:2], 'The VirtualMachineInstance was stopped.')
    return entry._replace(severity='OK', args=args,
                          text=event_registry.KUBERNETES.format(args))


def _theirs(event: objects.Json) -> Entry:
    text = event.get('message') or ''
    count = event.get('count') or 1
    if count > 1:
        text += f' ({count} times)'
    args = (event.get('reportingComponent')
            or (event.get('source') or {}).get('component') or 'Kubernetes',
            event.get('reason') or 'Event', text)
    return Entry(
        id=event['metadata']['name'], created=_created(event),
        seconds=cleared_log.when(event), occurrences=count,
        severity='OK' if event.get('type') == 'Normal' else 'Warning',
        text=event_registry.KUBERNETES.format(args), by=args[0],
        reason=args[1], message_id=event_registry.KUBERNETES.id, args=args)
