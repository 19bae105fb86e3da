# SPDX-License-Identifier: Apache-2.0
"""Secrets with an image server's user name and password, for CDI to read.

The DataVolume owns its Secret, which is deleted with it. For a BMC of one VM
the Secret has the DataVolume's name, so that access rights can name it, and a
type of its own, which is immutable in Kubernetes, so that a policy can limit
a BMC to Secrets of this type. (An account that may create Secrets of any type
and read them can get the token of every account of the namespace: Kubernetes
writes tokens into Secrets of type ``kubernetes.io/service-account-token``.)

For a BMC of many VMs access rights cannot name the Secrets. Each insert then
uses a unique name, and the BMC cannot read the Secret.
"""

from __future__ import annotations

import base64
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import stored_names

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import media_annotation
    from sushy_kubevirt.machine.media import model
    from sushy_kubevirt.machine import protocols


def is_named(machine: protocols.Machine) -> bool:
    """Return whether access rights name a machine's objects.

    They do for a BMC that serves one VM.
    """
    return bool(machine.cluster.vm)


def name(machine: protocols.Machine, entry: media_annotation.Entry) -> str:
    """Return the name of the Secret of a medium."""
    if is_named(machine):
        return entry.volume
    return f'{entry.volume}-{entry.id}'


def conflicting(machine: protocols.Machine, entry: media_annotation.Entry
                ) -> objects.Json | None:
    """Return another Secret with the name that CDI will read, or None.

    Call it before the DataVolume is created; otherwise CDI could send the
    password of an existing Secret to this image server.
    """
    if not entry.credentials or entry.upload or not is_named(machine):
        return None
    secret = _find(machine, entry)
    return None if secret is None or _attempt(
        secret) == entry.id else secret


def create(machine: protocols.Machine, device: model.Device,
           entry: media_annotation.Entry, volume: objects.DataVolume,
           source: model.Source) -> None:
    """Create the Secret, if the image server needs a password.

    :param volume: the DataVolume that uses it, as the API returned it
    """
    if not entry.credentials or entry.upload:
        return
    secret = body(machine, device, entry, volume, source)
    named = is_named(machine)

    def step() -> None:
        try:
            machine.cluster.client.create(
                api_resources.SECRET, machine.namespace, secret, named=named)
        except errors.Conflict as e:
            # On a retry the Secret may exist already. A name with the ID of
            # the attempt is unique.
            if named:
                existing = _find(machine, entry)
                if existing is None or _attempt(existing) != entry.id:
                    raise
            elif 'exists' not in str(e):
                raise

    retry.run(step, machine.options.write_deadline,
              machine.cluster.closing)


def body(machine: protocols.Machine, device: model.Device,
         entry: media_annotation.Entry, volume: objects.DataVolume,
         source: model.Source) -> objects.Json:
    """Return the Secret; for the parameters see `create`."""
    metadata = volume['metadata']
    return {
        'apiVersion': api_resources.SECRET.api_version,
        'kind': api_resources.SECRET.kind,
        'metadata': {
            'name': name(machine, entry),
            'namespace': machine.namespace,
            'labels': {stored_names.MEDIA: device.id},
            'annotations': {stored_names.MEDIA_ATTEMPT: entry.id},
            'ownerReferences': [{
                'apiVersion': api_resources.DATA_VOLUME.api_version,
                'kind': api_resources.DATA_VOLUME.kind,
                'name': metadata['name'], 'uid': metadata['uid']}],
        },
        'type': stored_names.IMAGE_SERVER,
        'data': {'accessKeyId': _encoded(source.username),
                 'secretKey': _encoded(source.password)},
    }


def _find(machine: protocols.Machine, entry: media_annotation.Entry
          ) -> objects.Json | None:
    try:
        return machine.cluster.client.get(
            api_resources.SECRET, machine.namespace, name(machine, entry))
    except errors.ObjectNotFound:
        return None


def _attempt(secret: objects.Json) -> str | None:
    return (secret['metadata'].get('annotations') or {}).get(
        stored_names.MEDIA_ATTEMPT)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
