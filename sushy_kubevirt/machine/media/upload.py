# SPDX-License-Identifier: Apache-2.0
"""Uploads: images that the BMC fetches because CDI cannot, or a client sends.

An upload is a thread of the process that handled the insert. Only that process
has the password or the client's request, so no other can continue it: it
writes a heartbeat to the DataVolume, and when that stops another process
reports the upload as failed.
"""

from __future__ import annotations

import json
import logging
import threading
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import claim_problem
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import tls
from sushy_kubevirt.machine.media import upload_stream

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine.media import image_size
    from sushy_kubevirt.machine.media import manager
    from sushy_kubevirt.machine import vm_state

LOG = logging.getLogger(__name__)

#: Seconds between two heartbeats.
HEARTBEAT_SECONDS = 3.0

#: Attempts, each with a new token; CDI's server starts over with each.
TRIES = 3

#: Seconds to wait for CDI to be ready for an upload.
_READY_SECONDS = 600


def start(machine: manager.Machine, entry: media_annotation.Entry,
          source: model.Source, pem: str, probe: image_size.Probe) -> None:
    """Start an upload.

    :param entry: that is in the drive
    :param pem: PEM of the certificates to verify the image server against
    """
    upload = Upload(machine, entry, source, pem, probe)
    machine.cluster.media.uploads[entry.id] = upload
    threading.Thread(target=upload.run, daemon=True,
                     name=f'upload-{entry.volume}').start()


def receive(machine: manager.Machine, entry: media_annotation.Entry,
            image: model.ClientImage, probe: image_size.Probe) -> None:
    """Upload an image that a client sends, in this thread.

    The parameters not described here are those of `start`.

    :raises: `errors.MachineError`, after the failure was recorded
    """
    upload = Upload(machine, entry, None, '', probe, image)
    machine.cluster.media.uploads[entry.id] = upload
    error = upload.run()
    if error is not None:
        raise error


class Upload:
    """One upload.

    The parameters are those of `start`, and:

    :param source: None for a client's image
    :param image: a client's; None to fetch the image
    """

    def __init__(self, machine: manager.Machine,
                 entry: media_annotation.Entry, source: model.Source | None,
                 pem: str, probe: image_size.Probe,
                 image: model.ClientImage | None = None) -> None:
        self.image = image
        self.machine = machine
        self._entry = entry
        self._source = source
        self._pem = pem
        self._length = probe.length
        self._media = machine.cluster.media
        self._stop = upload_stream.Stop()
        self._progress = 0.0

    def stop(self) -> None:
        """Stop it, from another thread."""
        self._stop.set()

    def run(self) -> Exception | None:
        """Upload the image; record a failure in the VM's annotation.

        :returns: what ended it before its end
        """
        threading.Thread(target=self._send_heartbeats, daemon=True,
                         name='upload-beat').start()
        name = self.machine.qualified_name
        try:
            self._upload()
            LOG.info('DataVolume %s of %s: upload complete',
                     self._entry.volume, name)
            return None
        except (upload_stream.Stopped, errors.MachineNotFound) as e:
            return e
        except errors.MachineError as e:
            LOG.warning('DataVolume %s of %s: upload failed: %s',
                        self._entry.volume, name, e)
            self._record_failure('UploadFailed', str(e))
            return e
        except Exception as e:
            LOG.exception('DataVolume %s of %s: upload failed',
                          self._entry.volume, name)
            self._record_failure('UploadFailed', str(e))
            return e
        finally:
            self._stop.set()
            self._media.uploads.pop(self._entry.id, None)

    def _upload(self) -> None:
        for tries in range(1, TRIES + 1):
            self._wait()
            try:
                self._send()
                return
            except errors.Unavailable as e:
                if tries == TRIES or self._is_finished() or (
                        self.image is not None and self.image.started):
                    raise
                LOG.info('DataVolume %s: upload interrupted, trying again: %s',
                         self._entry.volume, e)
                self._stop.wait(tries)

    def _is_finished(self) -> bool:
        return self._stop.is_set() or self.machine.cluster.closing.is_set()

    def _wait(self) -> None:
        """Wait until CDI accepts an upload."""
        status = datavolumes.Status(model.State.WAITING)

        def ready() -> bool:
            nonlocal status
            observed = self._media.volumes.get(
                self.machine.namespace, self._entry.volume, self._entry.uid)
            if observed is None:
                return self._is_finished()
            status = observed.status
            return (self._is_finished() or status.phase == 'UploadReady'
                    or status.state is model.State.FAILED)

        accepted = self._media.wait(ready, _READY_SECONDS)
        if self._is_finished():
            raise upload_stream.Stopped('The upload was stopped')
        if not accepted:
            raise errors.MachineError(
                f'CDI was not ready for the upload within {_READY_SECONDS} s')
        if status.state is model.State.FAILED:
            raise errors.MachineError(f'{status.reason}: {status.message}')

    def _send(self) -> None:
        machine = self.machine
        options = machine.options.media
        token = machine.cluster.client.create(
            api_resources.UPLOAD_TOKEN, machine.namespace, {
                'apiVersion': api_resources.UPLOAD_TOKEN.api_version,
                'kind': api_resources.UPLOAD_TOKEN.kind,
                'metadata': {'name': self._entry.volume,
                             'namespace': machine.namespace},
                'spec': {'pvcName': self._entry.volume}})
        ca = ''
        if options.upload_proxy_ca:
            ca = tls.read(options.upload_proxy_ca)
        proxy_url = options.upload_proxy_url or ''
        if self.image is not None:
            upload_stream.send(
                self.image.readinto, proxy_url, token['status']['token'], ca,
                None, self._sent, self._stop)
        elif self._source is not None:
            upload_stream.stream(
                self._source, proxy_url, token['status']['token'], options,
                self._entry.verify, self._pem, ca, self._length, self._sent,
                self._stop)

    def _sent(self, sent: int, total: int | None) -> None:
        if total := total or self._length:
            self._progress = min(sent * 100.0 / total, 100.0)

    def _send_heartbeats(self) -> None:
        number = 0
        while True:
            if self.image is not None and not self.image.authorized():
                self._refuse()
                return
            number += 1
            try:
                self._media.volumes.put(self.machine.cluster.client.patch(
                    api_resources.DATA_VOLUME, self.machine.namespace,
                    self._entry.volume, {'metadata': {
                        'uid': self._entry.uid, 'annotations': {
                            stored_names.UPLOAD: json.dumps({
                                'beat': number,
                                'progress': round(self._progress, 2)})}}}))
            except errors.ObjectNotFound:
                self.stop()
                return
            except errors.MachineError as e:
                LOG.info('DataVolume %s: heartbeat of the upload failed: %s',
                         self._entry.volume, e)
            if self._stop.wait(HEARTBEAT_SECONDS):
                return

    def _refuse(self) -> None:
        """Stop the upload of a client whose login has ended."""
        # It is recorded here: the client may send nothing for a while, which
        # the thread of the upload waits for.
        message = 'the login of the client is no longer valid'
        LOG.warning('DataVolume %s of %s: upload stopped: %s',
                    self._entry.volume, self.machine.qualified_name, message)
        self.stop()
        self._record_failure('UploadFailed', message)

    def _record_failure(self, reason: str, message: str) -> None:
        """Write the reason into the media annotation."""
        message += claim_problem.advice(
            reason, message, self.machine.options.media)
        if self.image is not None:
            message += '; upload the image again'

        def step(state: vm_state.VmState) -> None:
            record = media_annotation.read(state.vm)
            for id_, entry in record.media.items():
                if entry.id == self._entry.id and not entry.reason:
                    record.media[id_] = entry._replace(
                        reason=reason, message=message[:800])
            json_patch.send(self.machine, state.vm,
                            media_annotation.with_record(state.vm, record))

        try:
            self.machine.write(step)
        except errors.MachineError as e:
            LOG.warning('DataVolume %s: its failed upload could not be '
                        'recorded in the VM: %s',
                        self._entry.volume, e)
