# SPDX-License-Identifier: Apache-2.0
"""Claims with upload as their source: simulates CDI's upload pods.

A pod is ready as soon as its claim is bound, and done when the
:mod:`uploadproxy` has received a disk. The pods are not objects of the API;
annotations of the claim have their state.

Source: pkg/controller/upload-controller.go, cmd/cdi-uploadserver/
uploadserver.go (CDI 1.65).
"""
import asyncio

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.cdi import claim_annotations
from kubevirt_sandbox.cdi import claimspec
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.kubevirt import workqueue

_MANAGER, _COMPONENT = 'cdi-controller', 'upload-controller'
_PATIENCE = 10


class NotReadyError(Exception):
    """A claim does not accept uploads; the message is CDI's."""


class Uploads:
    """All upload pods.

    :param server: the :class:`sandbox.api.server.Server`.
    :param recorder: an :class:`kubevirt.events.Recorder`.
    :param loop: the asyncio loop.
    :param lag: see :class:`kubevirt.workqueue.WorkQueue`.
    """

    def __init__(self, server, recorder, loop, lag=0):
        self._store = server.store
        self._provisioner = server.provisioner
        self._recorder = recorder
        self._queue = workqueue.WorkQueue(loop, self._sync, 'upload', lag)
        #: {uid of a claim: function that ends the upload into it}
        self._active = {}
        self._provisioner.add_user(self._uses)
        self._end = self._store.subscribe(core.CLAIM, self._on_event)

    def close(self):
        """Stop."""
        self._end()
        self._queue.close()

    def _on_event(self, type_, claim, _old):
        meta = claim['metadata']
        if type_ == 'DELETED' or 'deletionTimestamp' in meta:
            stop = self._active.get(meta['uid'])
            if stop is not None:
                stop()
        elif claim_annotations.UPLOAD in claim_annotations.of(claim):
            self._queue.add((meta['namespace'], meta['name']))

    def _uses(self, namespace, name):
        claim = self._store.find(core.CLAIM, namespace, name)
        return claim is not None and claim['metadata'][
            'uid'] in self._active

    def _sync(self, key):
        claim = self._store.find(core.CLAIM, *key)
        if claim is None or 'deletionTimestamp' in claim['metadata']:
            return
        found = claim_annotations.of(claim)
        if found.get(claim_annotations.POD_PHASE) == 'Succeeded' or not (
                claimspec.is_bound(self._store, self._provisioner, claim)):
            return
        if claim_annotations.POD_PHASE not in found:
            self._note(
                key,
                {
                    claim_annotations.UPLOAD_POD: f'cdi-upload-{key[1]}',
                    claim_annotations.POD_PHASE: 'Pending',
                    claim_annotations.POD_READY: 'false',
                    claim_annotations.RUNNING: 'false',
                    claim_annotations.RUNNING_MESSAGE: '',
                    claim_annotations.RUNNING_REASON: 'ContainerCreating',
                },
            )
        elif found.get(claim_annotations.POD_READY) != 'true':
            self._note(
                key,
                {
                    claim_annotations.POD_PHASE: 'Running',
                    claim_annotations.POD_READY: 'true',
                    claim_annotations.RUNNING: 'true',
                    claim_annotations.RUNNING_MESSAGE: '',
                    claim_annotations.RUNNING_REASON: 'Pod is running',
                },
            )

    def _note(self, key, values):
        self._store.change(
            core.CLAIM, *key, lambda new: new['metadata'].setdefault(
                'annotations', {}).update(values), manager=_MANAGER)

    # -- calls of the proxy, in the server's loop -------------------------

    def available(self, claim):
        """Return the maximum size of a disk in a claim in bytes."""
        return claimspec.available(self._store, claim)

    async def ready(self, namespace, name):
        """Wait until a claim accepts uploads and return it.

        :raises NotReadyError: the claim cannot accept uploads.
        """
        changed = asyncio.Event()
        end = self._store.subscribe(core.CLAIM, lambda *_: changed.set())
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    claim = self._check(namespace, name)
                    if claim_annotations.of(claim).get(
                            claim_annotations.POD_READY) == 'true':
                        return claim
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            raise NotReadyError('timed out waiting for the condition'
                                ) from None
        finally:
            end()

    def _check(self, namespace, name):
        claim = self._store.find(core.CLAIM, namespace, name)
        if claim is None:
            raise NotReadyError(f'rejecting Upload Request for PVC {name} '
                                'that doesn\'t exist')
        found = claim_annotations.of(claim)
        if claim_annotations.UPLOAD not in found:
            raise NotReadyError(f'PVC {name} is not an upload target')
        if found.get(claim_annotations.POD_PHASE) == 'Succeeded':
            raise NotReadyError(f'rejecting Upload Request for PVC {name} '
                                'that already finished uploading')
        return claim

    async def begin(self, claim, stop):
        """Register the start of an upload.

        :param stop: function that ends it.
        :returns: False when the claim is going.
        """
        meta = claim['metadata']
        now = self._store.find(core.CLAIM, meta['namespace'], meta['name'])
        if now is None or now['metadata']['uid'] != meta['uid'] or (
                'deletionTimestamp' in now['metadata']):
            return False
        self._active[meta['uid']] = stop
        return True

    async def end(self, claim, done, failure=''):
        """Register the end of an upload.

        :param done: a disk has come.
        :param failure: why the pod had to end without one, or ''.
        """
        meta = claim['metadata']
        self._active.pop(meta['uid'], None)
        self._provisioner.look()
        key = meta['namespace'], meta['name']
        now = self._store.find(core.CLAIM, *key)
        if now is None or now['metadata']['uid'] != meta['uid']:
            return
        try:
            if done:
                self._note(
                    key,
                    {
                        claim_annotations.POD_PHASE: 'Succeeded',
                        claim_annotations.POD_READY: 'false',
                        claim_annotations.RUNNING: 'false',
                        claim_annotations.RUNNING_MESSAGE: 'Upload Complete',
                        claim_annotations.RUNNING_REASON: 'Completed',
                    },
                )
                self._recorder.event(
                    now, events.NORMAL, 'UploadSucceeded',
                    'Upload Successful', _COMPONENT)
            elif failure:
                restarts = int(
                    claim_annotations.of(now).get(
                        claim_annotations.RESTARTS) or 0)
                self._note(
                    key,
                    {
                        claim_annotations.POD_READY: 'false',
                        claim_annotations.RUNNING: 'false',
                        claim_annotations.RUNNING_MESSAGE: failure,
                        claim_annotations.RUNNING_REASON: 'Error',
                        claim_annotations.RESTARTS: str(restarts + 1),
                    },
                )
        except errors.ApiError:
            pass  # It is gone.
