# SPDX-License-Identifier: Apache-2.0
"""User name and password of an image's server: a Secret, for CDI to read.

It goes with its DataVolume. For a BMC of one VM it has the DataVolume's name,
so that access rights name it; and a type of its own, which Kubernetes lets
nobody change, so that a policy can say that a BMC makes no others. (Whoever
may make a Secret of any type and read it has the token of every account of
the namespace: Kubernetes writes them into Secrets of a type for that.)

For a BMC of many VMs no rights can name it. There it has a name that no other
insert has, and the BMC cannot read it.
"""

import base64

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine import annotations

#: Type of these Secrets.
TYPE = 'sushy-kubevirt.openstack.org/image-server'


class ForeignSecret(Exception):
    """A Secret that was not made here has the name."""


class StaleSecret(Exception):
    """The Secret of an earlier DataVolume of this name still exists."""


def is_named(machine):
    """Return whether access rights name a machine's objects."""
    return bool(machine.cluster.vm)


def name(machine, entry):
    """:returns: the name of the Secret of a `media_annotation.Entry`"""
    if is_named(machine):
        return entry.volume
    return f'{entry.volume}-{entry.id}'


def check_name(machine, entry):
    """Check that no other Secret has the name that CDI will read.

    Call it before the DataVolume is created: CDI would send a password to an
    image server that it is not meant for.

    :raises: `ForeignSecret`, `StaleSecret`
    """
    if not entry.credentials or entry.upload or not is_named(machine):
        return
    found = _find(machine, entry)
    if found is None or _attempt(found) == entry.id:
        return
    raise StaleSecret() if found.get('type') == TYPE else ForeignSecret()


def create(machine, device, entry, volume, source):
    """Make the Secret, if the image's server wants a password.

    :param device: a `model.Device`
    :param entry: its `media_annotation.Entry`
    :param volume: the DataVolume that uses it, as the API has it
    :param source: a `model.Source`
    """
    if not entry.credentials or entry.upload:
        return
    made = body(machine, device, entry, volume, source)
    named = is_named(machine)

    def step():
        try:
            machine.cluster.client.create(
                api_resources.SECRET, machine.namespace, made, named=named)
        except errors.Conflict as e:
            # On a retry the Secret may exist already. A name with the ID of
            # the attempt is unique.
            if named:
                found = _find(machine, entry)
                if found is None or _attempt(found) != entry.id:
                    raise
            elif 'exists' not in str(e):
                raise

    retry.run(step, machine.options, machine.cluster.closing)


def body(machine, device, entry, volume, source):
    """The Secret, see `create`."""
    metadata = volume['metadata']
    return {
        'apiVersion': api_resources.SECRET.api_version,
        'kind': api_resources.SECRET.kind,
        'metadata': {
            'name': name(machine, entry),
            'namespace': machine.namespace,
            'labels': {annotations.MEDIA: device.id},
            'annotations': {annotations.MEDIA_ATTEMPT: entry.id},
            'ownerReferences': [{
                'apiVersion': api_resources.DATA_VOLUME.api_version,
                'kind': api_resources.DATA_VOLUME.kind,
                'name': metadata['name'], 'uid': metadata['uid']}],
        },
        'type': TYPE,
        'data': {'accessKeyId': _encoded(source.username),
                 'secretKey': _encoded(source.password)},
    }


def _find(machine, entry):
    try:
        return machine.cluster.client.get(
            api_resources.SECRET, machine.namespace, name(machine, entry))
    except errors.ObjectNotFound:
        return None


def _attempt(secret):
    return (secret['metadata'].get('annotations') or {}).get(
        annotations.MEDIA_ATTEMPT)


def _encoded(text):
    return base64.b64encode(text.encode()).decode()
