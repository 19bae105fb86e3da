# SPDX-License-Identifier: Apache-2.0
"""The log of a machine: Kubernetes' Events about it, and ours among them.

Nothing is kept here. What KubeVirt and CDI say of a VM, its VMI and its
media, Kubernetes keeps for a while (an hour, unless its administrator says
otherwise); the leader puts what it tells beside that, under names that follow
from the events, so that it does not matter how often that is done. Reading
asks the API.
"""

import dataclasses
import json
import logging
import queue
import threading
import time

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import media
from sushy_kubevirt.redfish.services.events import messages

LOG = logging.getLogger(__name__)

COMPONENT = 'sushy-kubevirt'
ANNOTATION = api_resources.PREFIX + 'event'

#: Entries that are shown, the newest.
MOST = 1000

#: Seconds that what was read serves further reads: of each entry of a
#: collection, for one.
FRESH_SECONDS = 2.0

#: Seconds without a try after one was refused.
PAUSE = 60.0

_SEVERITIES = ('OK', 'Warning', 'Critical')
_WAITING = 1000
_LONGEST = 1000
_KINDS = (api_resources.VM.kind, api_resources.VMI.kind, 'DataVolume',
          'PersistentVolumeClaim')


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry.

    :param id: name of the Event
    :param created: when it happened (last), ISO 8601
    :param severity: ``OK``, ``Warning`` or ``Critical``
    :param text: what
    :param by: who says so, such as ``virtualmachine-controller``
    :param reason: one word
    :param message_id: of ours, or of that for Events of Kubernetes
    :param args: of that message
    :param origin: path of the resource ours is about, else ''
    :param event: EventId of ours, else ''
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
    """The logs of all machines.

    :param cluster: a `cluster.Cluster`
    """

    def __init__(self, cluster):
        self._cluster = cluster
        self.after_fork()

    def after_fork(self):
        self._lock = threading.Lock()
        self._queue = None
        self._pause_until = 0
        self._read = {}     # uid: (time, entries)

    # Writing

    def record(self, record):
        """Keep an event, later, by a thread of its own.

        :param record: a `records.Record`
        """
        if not record.uid and not self._cluster.vm:
            return      # about no VM, or nobody knows which
        with self._lock:
            if self._queue is None:
                self._queue = queue.Queue(_WAITING)
                threading.Thread(target=self._run, args=(self._queue,),
                                 daemon=True, name='events-log').start()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            LOG.info('The log lacks an event: %s', record.text)

    def close(self):
        with self._lock:
            if self._queue is not None:
                # A full queue has a thread that looks at `closing`.
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
                LOG.warning('The log of the systems lacks events: %s', e)
                self._pause_until = time.monotonic() + PAUSE
            except errors.MachineError as e:
                LOG.info('The log lacks an event: %s', e)
            except Exception:
                LOG.exception('The log lacks an event')

    def _write(self, record):
        body = self._event(record)
        namespace = body['metadata']['namespace']

        def step():
            try:
                self._cluster.client.create(
                    api_resources.EVENT, namespace, body)
            except errors.Conflict:
                pass    # it is there

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
            'reason': record.key, 'message': record.text[:_LONGEST],
            'type': 'Normal' if record.severity == 'OK' else 'Warning',
            'source': {'component': COMPONENT},
            'reportingComponent': COMPONENT, 'reportingInstance': '',
            'firstTimestamp': when, 'lastTimestamp': when, 'count': 1,
        }

    # Reading

    def entries(self, machine):
        """What there is about a machine.

        :param machine: a `machine.Machine`
        :returns: tuple of `Entry`, the oldest first
        :raises: `errors.MachineError`
        """
        known = self._read.get(machine.uid)
        now = time.monotonic()
        if known is None or now - known[0] > FRESH_SECONDS:
            found = sorted(map(_entry, self._events(machine)),
                           key=lambda entry: (entry.created, entry.id))
            known = now, tuple(found[-MOST:])
            for uid in [uid for uid, (at, _) in tuple(self._read.items())
                        if now - at > FRESH_SECONDS]:
                self._read.pop(uid, None)
            self._read[machine.uid] = known
        return known[1]

    def clear(self, machine):
        """Delete those of ours.

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
        """The Events about a machine, each once."""
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
                    continue    # of a VM that had the name before
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
        return None     # whoever may write Events may have written it


def _theirs(event):
    text = event.get('message') or ''
    count = event.get('count') or 1
    if count > 1:
        text += ' (%d times)' % count
    args = (event.get('reportingComponent')
            or (event.get('source') or {}).get('component') or 'Kubernetes',
            event.get('reason') or 'Event', text)
    return Entry(
        id=event['metadata']['name'], created=_when(event),
        severity='OK' if event.get('type') == 'Normal' else 'Warning',
        text=messages.KUBERNETES.filled(args), by=args[0], reason=args[1],
        message_id=messages.KUBERNETES.id, args=args)
