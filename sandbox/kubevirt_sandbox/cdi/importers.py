# SPDX-License-Identifier: Apache-2.0
"""Simulates CDI's importer pods, which import images into claims.

Each attempt at an import runs in a thread of its own. A failed import is
retried without limit, the first time immediately, then with a back-off. The
pods are not objects of the API; annotations of the claim have their state.

Source: pkg/controller/import-controller.go, pkg/controller/util.go
(setAnnotationsFromPodWithPrefix), cmd/cdi-importer/importer.go (CDI 1.65);
kubelet's back-off: 10 s, doubled up to 300 s.
"""
import base64
import collections
import dataclasses
import logging
import threading

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.cdi import claim_annotations
from kubevirt_sandbox.cdi import claimspec
from kubevirt_sandbox.cdi import download_errors
from kubevirt_sandbox.cdi import images
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.kubevirt import workqueue

LOG = logging.getLogger(__name__)

#: Maximum number of concurrent imports; further ones stay scheduled.
MOST = 64

_MANAGER = 'cdi-controller'
_COMPONENT = 'import-controller'
_LONGEST = 30  # times the first back-off, as kubelet's 300 s are of its 10
_TOO_SMALL = ('is larger than the reported available',
              'no space left on device', 'disk quota exceeded')


class _WaitingError(Exception):
    """The container cannot be created; has its state's reason and message.
    """


@dataclasses.dataclass
class _Pod:
    """An importer pod.

    :param uid: uid of the claim.
    :param attempt: work of the thread, or None between attempts.
    :param again: event loop time of the next attempt.
    :param failures: number of failed attempts.
    """

    uid: str
    attempt: object = None
    thread: threading.Thread | None = None
    again: float = 0
    failures: int = 0
    removed: bool = False


class Importers:
    """All importer pods.

    :param server: the :class:`kubevirt_sandbox.api.server.Server`.
    :param storage: the :class:`storage.Storage`.
    :param recorder: an :class:`kubevirt.events.Recorder`.
    :param loop: the asyncio loop.
    :param import_delays: the :class:`import_delays.ImportDelays`.
    :param back_off: seconds until the second restart of a failing import;
        the first restart is immediate.
    :param lag: see :class:`kubevirt.workqueue.WorkQueue`.
    :param disks: dictionary of disk files by container image reference.
    """

    def __init__(
        self, server, storage, recorder, loop, import_delays, back_off, lag=0,
        disks=None,
    ):
        self._store = server.store
        self._provisioner = server.provisioner
        self._storage = storage
        self._recorder = recorder
        self._loop = loop
        self._import_delays = import_delays
        self._back_off = back_off
        self._disks = disks or {}
        self._pods = {}
        self._full = collections.OrderedDict()
        self._closed = False
        self._queue = workqueue.WorkQueue(loop, self._sync, 'import', lag)
        self._provisioner.add_user(self._uses)
        self._end = self._store.subscribe(core.CLAIM, self._on_event)

    def close(self):
        """End all importers."""
        self._closed = True
        self._end()
        self._queue.close()
        for pod in self._pods.values():
            if pod.attempt is not None:
                pod.attempt.stop()
        end = self._loop.time() + 2
        for pod in self._pods.values():
            if pod.thread is not None:
                pod.thread.join(max(0, end - self._loop.time()))

    def progress(self, claim):
        """Return the progress of a claim's import in percent, or None."""
        pod = self._pods.get(claim['metadata']['uid'])
        attempt = pod and pod.attempt
        return attempt.progress if attempt is not None else None

    # -- events ----------------------------------------------------------

    def _on_event(self, type_, claim, _old):
        meta = claim['metadata']
        if type_ == 'DELETED' or 'deletionTimestamp' in meta:
            self._remove(meta['uid'])
        elif not {
            claim_annotations.SOURCE,
            claim_annotations.CLONE,
        }.isdisjoint(claim_annotations.of(claim)):
            self._queue.add((meta['namespace'], meta['name']))

    def _uses(self, namespace, name):
        """Tell whether an importer still writes to a claim."""
        claim = self._store.find(core.CLAIM, namespace, name)
        pod = claim and self._pods.get(claim['metadata']['uid'])
        return pod is not None and pod.thread is not None

    def _remove(self, uid):
        """Delete a pod; it is removed when its thread has ended."""
        pod = self._pods.get(uid)
        if pod is None:
            return
        pod.removed = True
        if pod.attempt is not None:
            pod.attempt.stop()
        if pod.thread is None:
            del self._pods[uid]

    # -- reconciliation --------------------------------------------------

    def _sync(self, key):
        claim = self._store.find(core.CLAIM, *key)
        if claim is None or 'deletionTimestamp' in claim['metadata']:
            return
        found = claim_annotations.of(claim)
        if found.get(claim_annotations.POD_PHASE) == 'Succeeded' or found.get(
                claim_annotations.FATAL) == 'true':
            return
        if not claimspec.is_bound(self._store, self._provisioner, claim):
            return
        if (
            claim_annotations.IMPORT_POD not in found
            and claim_annotations.SOURCE in found
        ):
            self._note(
                key, {
                    claim_annotations.IMPORT_POD: f'importer-{key[1]}'})
            return
        uid = claim['metadata']['uid']
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = _Pod(uid)
            self._note(
                key,
                {
                    claim_annotations.POD_PHASE: 'Pending',
                    claim_annotations.SCHEDULABLE: 'true',
                    **_waiting('ContainerCreating', ''),
                },
            )
        if pod.thread is not None or pod.removed:
            return
        left = pod.again - self._loop.time()
        if left > 0:
            self._queue.add_after(key, left)
            return
        self._start(key, claim, pod)

    def _start(self, key, claim, pod):
        if sum(p.thread is not None for p in self._pods.values()) >= MOST:
            self._full[key] = True
            return
        try:
            attempt, work = self._prepare(claim)
        except _WaitingError as exc:
            self._note(key, _waiting(*exc.args))
            pod.again = self._loop.time() + self._back_off
            self._queue.add_after(key, self._back_off)
            return
        pod.attempt = attempt
        pod.thread = threading.Thread(
            target=self._run, args=(key, pod.uid, work), daemon=True,
            name=f'importer-{key[1]}')
        self._note(
            key,
            {
                claim_annotations.POD_PHASE: 'Running',
                claim_annotations.RUNNING: 'true',
                claim_annotations.RUNNING_MESSAGE: '',
                claim_annotations.RUNNING_REASON: 'Pod is running',
                claim_annotations.RESTARTS: str(pod.failures),
            },
        )
        pod.thread.start()

    def _run(self, key, uid, work):
        """Do the work in a thread and report its result to the loop."""
        failure = None
        try:
            work()
        except Exception as exc:
            failure = exc
        if not self._closed:
            try:
                self._loop.call_soon_threadsafe(
                    self._ended, key, uid, failure)
            except RuntimeError:
                pass  # The loop is closed, so the result is not needed.

    def _ended(self, key, uid, failure):
        pod = self._pods[uid]
        pod.thread = pod.attempt = None
        while self._full:
            self._queue.add(self._full.popitem(last=False)[0])
            break
        if pod.removed or isinstance(failure, download_errors.StoppedError):
            del self._pods[uid]
            self._provisioner.look()
            self._queue.add(key)
            return
        try:
            if failure is None:
                self._succeed(key, uid)
            else:
                self._fail(key, pod, failure)
        except errors.ApiError as exc:
            if exc.code != 404:
                raise

    def _succeed(self, key, uid):
        del self._pods[uid]
        claim = self._store.get(core.CLAIM, *key)
        self._note(
            key,
            {
                claim_annotations.POD_PHASE: 'Succeeded',
                claim_annotations.RUNNING: 'false',
                claim_annotations.RUNNING_MESSAGE: 'Import Complete',
                claim_annotations.RUNNING_REASON: 'Completed',
            },
        )
        self._record(claim, events.NORMAL, 'ImportSucceeded',
                     'Import Successful')

    def _fail(self, key, pod, failure):
        fatal = getattr(failure, 'fatal', False)
        if not isinstance(failure, download_errors.ImportFailedError):
            LOG.error('The importer of %s/%s failed', *key,
                      exc_info=failure)
            failure = f'Unable to process data: {failure}'
        message = str(failure)
        claim = self._store.get(core.CLAIM, *key)
        shown = simplified(message)
        if fatal:
            del self._pods[pod.uid]
            self._note(
                key,
                {
                    claim_annotations.POD_PHASE: 'Failed',
                    claim_annotations.FATAL: 'true',
                    claim_annotations.RUNNING: 'false',
                    claim_annotations.RUNNING_MESSAGE: shown,
                    claim_annotations.RUNNING_REASON: 'ChecksumError',
                },
            )
        else:
            # The first restart is immediate, like kubelet's.
            wait = min(2 ** (pod.failures - 1), _LONGEST) * (
                self._back_off) if pod.failures else 0
            pod.failures += 1
            pod.again = self._loop.time() + wait
            self._note(key, _waiting(
                'ImagePullFailed' if 'failed to pull image' in message
                else 'Error', shown))
            self._queue.add_after(key, wait)
        self._record(claim, events.WARNING, 'ErrImportFailed', message)

    def _note(self, key, values):
        self._store.change(
            core.CLAIM, *key, lambda new: new['metadata'].setdefault(
                'annotations', {}).update(values), manager=_MANAGER)

    def _record(self, claim, kind, reason, message):
        self._recorder.event(claim, kind, reason, message, _COMPONENT)

    # -- work of a pod ---------------------------------------------------

    def _prepare(self, claim):
        """Prepare the work of the thread.

        :returns: (object with ``progress`` and ``stop()``, function to run).
        :raises _WaitingError: e.g. a Secret is missing.
        """
        meta, found = claim['metadata'], claim_annotations.of(claim)
        path = self._storage.path(meta['namespace'], meta['name'])
        space = claimspec.available(self._store, claim)
        if claim_annotations.CLONE in found:
            namespace, _, name = found[claim_annotations.CLONE].partition('/')
            copy = _Copy(self._storage.path(namespace, name), path, space)
            return copy, copy.run
        if found[claim_annotations.SOURCE] == claim_annotations.NONE:
            copy = _Copy(None, path, space)
            return copy, copy.run
        if found[claim_annotations.SOURCE] == claim_annotations.REGISTRY:
            image = found[claim_annotations.ENDPOINT].removeprefix('docker://')
            copy = _Copy(self._disks.get(image), path, space, raw=False)
            return copy, (copy.run if image in self._disks
                          else lambda: _pull_failed(image))
        if found[claim_annotations.SOURCE] != claim_annotations.HTTP:
            raise _WaitingError(
                'ErrImagePull', 'the sandbox cannot import from '
                f'{found[claim_annotations.SOURCE]}')
        # Imported for the first download: it needs an HTTP client.
        from kubevirt_sandbox.cdi import download
        source = self._source(meta['namespace'], found)
        delay, rate = self._import_delays.of(source.url)
        attempt = download.Download(source, delay, rate)
        archive = found.get(claim_annotations.CONTENT_TYPE) == 'archive'
        return attempt, lambda: attempt.run(path, space, archive)

    def _source(self, namespace, found):
        username = password = ''
        if found.get(claim_annotations.SECRET):
            username, password = (
                self._value(namespace, found[claim_annotations.SECRET], key)
                for key in ('accessKeyId', 'secretKey'))
        authorities = None
        if found.get(claim_annotations.CERTIFICATES):
            item = self._store.find(core.CONFIG_MAP, namespace,
                                    found[claim_annotations.CERTIFICATES])
            if item is None:
                # The volume cannot be mounted; kubelet reports this with
                # events only.
                raise _WaitingError('ContainerCreating', '')
            authorities = '\n'.join((item.get('data') or {}).values())
        headers = _numbered(found, claim_annotations.HEADERS)
        for name in _numbered(found, claim_annotations.SECRET_HEADERS):
            secret = self._store.find(core.SECRET, namespace, name)
            if secret is None:
                raise _WaitingError('ContainerCreating', '')
            headers += [_text(value) for _, value in sorted(
                (secret.get('data') or {}).items())]
        from kubevirt_sandbox.cdi import download
        return download.Source(
            found[claim_annotations.ENDPOINT], username, password, authorities,
            found.get(claim_annotations.INSECURE) == 'true', tuple(headers),
            found.get(claim_annotations.CHECKSUM, ''))

    def _value(self, namespace, name, key):
        secret = self._store.find(core.SECRET, namespace, name)
        if secret is None:
            raise _WaitingError('CreateContainerConfigError',
                                f'secret "{name}" not found')
        data = secret.get('data') or {}
        if key not in data:
            raise _WaitingError(
                'CreateContainerConfigError', f'couldn\'t find key {key} in '
                f'Secret {namespace}/{name}')
        return _text(data[key])


def simplified(message):
    """Convert a message as CDI does for the condition of a DataVolume."""
    if any(text in message for text in _TOO_SMALL):
        return 'DataVolume too small to contain image'
    return message


def _waiting(reason, message):
    return {
        claim_annotations.RUNNING: 'false',
        claim_annotations.RUNNING_REASON: reason,
        claim_annotations.RUNNING_MESSAGE: message,
    }


def _numbered(found, prefix):
    """Return the values of ``prefix.0``, ``prefix.1``, …"""
    values = []
    while f'{prefix}.{len(values)}' in found:
        values.append(found[f'{prefix}.{len(values)}'])
    return values


def _text(value):
    return base64.b64decode(value).decode(errors='replace')


def _pull_failed(image):
    raise download_errors.ImportFailedError(
        'Unable to process data: failed to pull image: reading manifest of '
        f'{image}: manifest unknown')


class _Copy:
    """A copy of another disk, or an empty one.

    :param source: path of the other disk, or None.
    :param target: path to write.
    :param size: size of the disk in bytes.
    :param raw: whether the other disk is raw; otherwise it may have any
        format that images have.
    """

    progress = None

    def __init__(self, source, target, size, raw=True):
        self._raw = raw
        self._source = source
        self._target = target
        self._size = size
        self._stopped = False

    def stop(self):
        """Request the end of the copy."""
        self._stopped = True

    def run(self):
        """Write the disk."""
        self._target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._source is None:
            self._target.unlink(missing_ok=True)
            with open(self._target, 'xb') as file:
                file.truncate(self._size)
            return
        image = images.Image(self._target, self._size)
        try:
            with open(self._source, 'rb') as source:
                if self._raw:
                    image.begin_raw()
                while piece := source.read(images.MIB):
                    if self._stopped:
                        raise download_errors.StoppedError
                    image.feed(piece)
            image.received()
            image.finish()
        except download_errors.StoppedError:
            image.discard()
            raise
        except (OSError, images.ImageError) as exc:
            image.discard()
            raise download_errors.ImportFailedError(
                f'Unable to process data: {exc}') from None
