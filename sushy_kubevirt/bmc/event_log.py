# SPDX-License-Identifier: Apache-2.0
"""The log of a machine: Kubernetes Events about it, including our own.

Entries are not stored here. Kubernetes keeps the Events of KubeVirt and CDI
about a VM, its VMI and its media for a limited time (one hour by default).
The leader adds each Redfish event as an Event whose name is derived from the
event's id, so that repeated writes have no effect. Entries are read from the
API.
"""

import dataclasses
import json
import logging
import queue
import threading
import time

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import media

LOG = logging.getLogger(__name__)

COMPONENT = 'sushy-kubevirt'
ANNOTATION = api_resources.PREFIX + 'event'

#: Largest number of entries of a log; older ones are not shown.
MAX_ENTRIES = 1000

#: Seconds for which entries are cached: clients read a collection and then
#: each of its entries.
FRESH_SECONDS = 2.0

#: Seconds without writes after the API denied one.
PAUSE_SECONDS = 60.0

_SEVERITIES = ('OK', 'Warning', 'Critical')

#: Largest number of records that wait to be written.
_MAX_QUEUE = 1000

#: Largest number of characters of a Kubernetes Event's message.
_MAX_MESSAGE = 1000
_KINDS = (api_resources.VM.kind, api_resources.VMI.kind, 'DataVolume',
          'PersistentVolumeClaim')


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry of a log.

    :param id: name of the Kubernetes Event
    :param created: time of the (last) occurrence, ISO 8601
    :param severity: ``OK``, ``Warning`` or ``Critical``
    :param text: the message
    :param by: the reporting component, such as ``virtualmachine-controller``
    :param reason: the Event's reason, one word
    :param message_id: MessageId; that of `event_registry.KUBERNETES` for
        Events of other components
    :param args: tuple of the message's arguments
    :param origin: path of the resource a Redfish event is about, else ''
    :param event: EventId of a Redfish event, else ''
    """

    id: str
    created: str
    severity: str
    text: str
    by: str
    reason: str
    message_id: str
    args: tuple
    origin: str = ''
    event: str = ''


class Log:
    """The logs of all machines. Thread-safe.

    :param cluster: a `cluster.Cluster`
    """

    def __init__(self, cluster):
        self._cluster = cluster
        self.after_fork()

    def after_fork(self):
        """Reset the state; threads exist in the parent only."""
        self._lock = threading.Lock()
        self._queue = None
        self._pause_until = 0
        self._read = {}     # uid: (time, entries)

    # Writing

    def record(self, record):
        """Write an event to the log, in a background thread.

        :param record: an `event_record.Record`
        """
        if not record.uid and not self._cluster.vm:
            return      # not about a VM
        with self._lock:
            if self._queue is None:
                self._queue = queue.Queue(_MAX_QUEUE)
                threading.Thread(target=self._run, args=(self._queue,),
                                 daemon=True, name='events-log').start()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            LOG.info('%d events wait to be logged; not logged: %s',
                     _MAX_QUEUE, record.text)

    def close(self):
        """Stop the background thread."""
        with self._lock:
            if self._queue is not None:
                # If the queue is full, the thread ends because of `closing`.
                try:
                    self._queue.put_nowait(None)
                except queue.Full:
                    pass

    def _run(self, waiting):
        while not self._cluster.closing.is_set():
            record = waiting.get()
            if record is None:
                return
            if time.monotonic() < self._pause_until:
                continue
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

    def _write(self, record):
        """Create the Kubernetes Event of a record.

        :raises: `errors.MachineError`
        """
        body = self._event(record)
        namespace = body['metadata']['namespace']

        def step():
            try:
                self._cluster.client.create(
                    api_resources.EVENT, namespace, body)
            except errors.Conflict:
                pass    # it exists already

        retry.run(step, self._cluster.options, self._cluster.closing)
        self._read.pop(body['involvedObject']['uid'], None)

    def _event(self, record):
        if record.uid:
            namespace, name = record.system.split('/', 1)
            uid = record.uid
        else:
            machine = self._cluster.machine('/'.join(self._cluster.vm))
            namespace, name, uid = (machine.namespace, machine.name,
                                    machine.uid)
        when = record.time.partition('.')[0].partition('+')[0] + 'Z'
        return {
            'apiVersion': api_resources.EVENT.api_version,
            'kind': api_resources.EVENT.kind,
            'metadata': {
                'name': f'{name}.{record.id}', 'namespace': namespace,
                'annotations': {ANNOTATION: json.dumps({
                    'id': record.id, 'message': record.message_id,
                    'args': record.args, 'severity': record.severity,
                    'origin': record.origin})}},
            'involvedObject': {
                'apiVersion': api_resources.VM.api_version,
                'kind': api_resources.VM.kind, 'namespace': namespace,
                'name': name, 'uid': uid},
            'reason': record.key, 'message': record.text[:_MAX_MESSAGE],
            'type': 'Normal' if record.severity == 'OK' else 'Warning',
            'source': {'component': COMPONENT},
            'reportingComponent': COMPONENT, 'reportingInstance': '',
            'firstTimestamp': when, 'lastTimestamp': when, 'count': 1,
        }

    # Reading

    def entries(self, machine):
        """Read the log of a machine.

        :param machine: a `machine.Machine`
        :returns: tuple of `Entry`, oldest first
        :raises: `errors.MachineError`
        """
        known = self._read.get(machine.uid)
        now = time.monotonic()
        if known is None or now - known[0] > FRESH_SECONDS:
            found = sorted(map(_entry, self._events(machine)),
                           key=lambda entry: (entry.created, entry.id))
            known = now, tuple(found[-MAX_ENTRIES:])
            for uid in [uid for uid, (at, _) in tuple(self._read.items())
                        if now - at > FRESH_SECONDS]:
                self._read.pop(uid, None)
            self._read[machine.uid] = known
        return known[1]

    def clear(self, machine):
        """Delete the machine's Events that this service created.

        :param machine: a `machine.Machine`
        :raises: `errors.MachineError`
        """
        for event in self._events(machine):
            if _is_ours(event):
                try:
                    self._cluster.client.delete(
                        api_resources.EVENT, machine.namespace,
                        event['metadata']['name'])
                except errors.ObjectNotFound:
                    pass
        self._read.pop(machine.uid, None)

    def _events(self, machine):
        """List the Events about a machine, its VMI and its media.

        :returns: iterable of dict, each Event once
        """
        vm, _ = machine.objects()
        born = vm['metadata'].get('creationTimestamp') or ''
        names = {machine.name: None}
        for device in media.DEVICES:
            medium = machine.medium(device.id)
            if medium is not None and medium.data_volume:
                names[medium.data_volume] = None
        found = {}
        for name in names:
            for event in self._about(machine.namespace, name):
                about = event.get('involvedObject') or {}
                if about.get('kind') not in _KINDS:
                    continue
                if about['kind'] == api_resources.VM.kind:
                    if about.get('uid') != machine.uid:
                        continue
                elif _when(event) < born:
                    continue    # of a deleted VM of the same name
                found[event['metadata']['name']] = event
        return found.values()

    def _about(self, namespace, name):
        try:
            pages = self._cluster.client.pages(
                api_resources.EVENT, namespace,
                field_selector='involvedObject.name=' + name)
            return [event for items, _ in pages for event in items]
        except errors.WatchExpired as e:
            raise errors.Unavailable(str(e)) from None


def _is_ours(event):
    return event.get('reportingComponent') == COMPONENT and (
        ANNOTATION in (event['metadata'].get('annotations') or {}))


def _when(event):
    return (event.get('lastTimestamp') or event.get('eventTime')
            or event.get('firstTimestamp')
            or event['metadata'].get('creationTimestamp') or '')


def _entry(event):
    return _ours(event) or _theirs(event)


def _ours(event):
    if not _is_ours(event):
        return None
    try:
        ours = json.loads(event['metadata']['annotations'][ANNOTATION])
        return Entry(
            id=event['metadata']['name'], created=_when(event),
            severity=ours['severity'] if ours['severity'] in _SEVERITIES
            else 'OK', text=event['message'], by=COMPONENT,
            reason=event['reason'], message_id=str(ours['message']),
            args=tuple(map(str, ours['args'])), origin=str(ours['origin']),
            event=str(ours['id']))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None     # another client wrote an invalid annotation


def _theirs(event):
    text = event.get('message') or ''
    count = event.get('count') or 1
    if count > 1:
        text += f' ({count} times)'
    args = (event.get('reportingComponent')
            or (event.get('source') or {}).get('component') or 'Kubernetes',
            event.get('reason') or 'Event', text)
    return Entry(
        id=event['metadata']['name'], created=_when(event),
        severity='OK' if event.get('type') == 'Normal' else 'Warning',
        text=event_registry.KUBERNETES.format(args), by=args[0],
        reason=args[1], message_id=event_registry.KUBERNETES.id, args=args)
