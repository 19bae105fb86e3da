# SPDX-License-Identifier: Apache-2.0
"""Certificates to verify image servers against, per device.

They are stored in a ConfigMap owned by the VM, from which CDI reads them. The
media annotation of the VM has their digests, so that listing certificates
costs no API call once their text was read.
"""

from __future__ import annotations

import copy
import hashlib
import ssl

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.kube import retry
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import image_credentials
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import tls

#: Maximum number of certificates of a device.
MAX_CERTIFICATES = 16

#: ConfigMap key of the certificates in the file ``MEDIA_CA_FILE``.
_CA_FILE_KEY = 'operator.pem'


def verify(machine, device):
    """See `machine.Machine.media_verify`."""
    record = media_annotation.read(machine.objects()[0])
    return record.verify.get(device.id, machine.options.media.verify)


def verify_change(machine, device, value):
    """Return a change of the default of `verify`, see `machine.changes`.

    :param machine: a `machine.Machine`
    :param device: a `model.Device`
    :param value: whether certificates are verified
    """
    def change(vm, _vmi) -> None:
        record = media_annotation.read(vm)
        if (device.id in record.verify
                or value != machine.options.media.verify):
            record.verify[device.id] = value
            media_annotation.write(vm, record)

    return change


def certificates(machine, device):
    """See `machine.Machine.media_certificates`."""
    kept = media_annotation.read(machine.objects()[0]).certificates.get(
        device.id, {})
    known = machine.cluster.media.certificates
    if not all(digest in known for digest in kept.values()):
        for text in _data(machine, device).values():
            known[_digest(text)] = text
    return tuple(model.Certificate(number, known[digest]) for number, digest
                 in sorted(kept.items(), key=lambda item: int(item[0]))
                 if digest in known)


def pem(machine, device):
    """Return the certificates of a device as one PEM text, '' for none."""
    return ''.join(each.pem for each in certificates(machine, device))


def add(machine, device, text):
    """See `machine.Machine.add_media_certificate`."""
    text = _checked(text)
    digest = _digest(text)
    number, added = [], []

    def step(vm, _vmi):
        record = media_annotation.read(vm)
        kept = record.certificates.setdefault(device.id, {})
        for known, known_digest in kept.items():
            if known_digest == digest:
                number[:] = [known]
                return
        if len(kept) >= MAX_CERTIFICATES:
            raise errors.WrongState(
                f'{device.id} of {machine.qualified_name} already has '
                f'{len(kept)} certificates; delete one first')
        number[:] = [str(next(n for n in range(1, MAX_CERTIFICATES + 1)
                              if str(n) not in kept))]
        kept[number[0]] = digest
        added[:] = number
        _write(machine, vm, record)

    machine.write(step)
    try:
        _put(machine, device, number[0] + '.pem', text)
    except errors.MachineError:
        if added:
            machine.write(lambda vm, _vmi: _drop(
                machine, device, vm, number[0]))
        raise
    machine.cluster.media.certificates[digest] = text
    return model.Certificate(number[0], text)


def delete(machine, device, number):
    """See `machine.Machine.delete_media_certificate`."""
    record = media_annotation.read(machine.objects()[0])
    if number not in record.certificates.get(device.id, {}):
        raise errors.InvalidValue(
            'Certificate', number,
            message=f'{device.id} of {machine.qualified_name} has no '
            f'certificate {number}')

    machine.write(lambda vm, _vmi: _drop(machine, device, vm, number))
    _remove(machine, device, number + '.pem')


def _drop(machine, device, vm, number) -> None:
    """Remove a certificate from the record, if it is there."""
    record = media_annotation.read(vm)
    if record.certificates.get(device.id, {}).pop(number, None):
        _write(machine, vm, record)


def publish(machine, device):
    """Make sure that CDI's ConfigMap has the certificates of a device.

    :returns: name of the ConfigMap, None if there are none
    """
    path = machine.options.media.ca_file
    if path:
        _put(machine, device, _CA_FILE_KEY, tls.read(path))
    elif not media_annotation.read(
            machine.objects()[0]).certificates.get(device.id):
        return None
    return media_annotation.ca_config_map(machine.name, device.id)


def _checked(text):
    """Parse one certificate into the form that is stored.

    :raises: `errors.InvalidValue`
    """
    found = tls.certificates(text) if isinstance(text, str) else []
    if len(found) == 1:
        try:
            ssl.create_default_context(cadata=found[0])
            return found[0]
        except (ssl.SSLError, ValueError):
            pass
    raise errors.InvalidValue(
        'CertificateString', '', message='CertificateString has to be one '
        'certificate in PEM format')


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _write(machine, vm, record) -> None:
    edited = copy.deepcopy(vm)
    media_annotation.write(edited, record)
    json_patch.send(machine, vm, edited)


# The ConfigMap

def _config_map(machine, device):
    """Return (resource, namespace, name) of the ConfigMap."""
    return (api_resources.CONFIG_MAP, machine.namespace,
            media_annotation.ca_config_map(machine.name, device.id))


def _owner_test(machine):
    return {'op': 'test', 'path': '/metadata/ownerReferences/0/uid',
            'value': machine.uid}


def _data(machine, device):
    try:
        found = machine.cluster.client.get(*_config_map(machine, device))
    except errors.ObjectNotFound:
        return {}
    return found.get('data') or {}


def _put(machine, device, key, text) -> None:
    config_map = _config_map(machine, device)
    client = machine.cluster.client
    body = {
        'apiVersion': api_resources.CONFIG_MAP.api_version,
        'kind': api_resources.CONFIG_MAP.kind,
        'metadata': {'name': config_map[2], 'namespace': machine.namespace,
                     'labels': {datavolumes.LABEL: device.id},
                     'ownerReferences': [datavolumes.owner(machine)]},
        'data': {key: text}}

    def step():
        try:
            client.patch(*config_map, [_owner_test(machine), {
                'op': 'add', 'path': '/data/' + key, 'value': text}])
        except errors.ObjectNotFound:
            client.create(*config_map[:2], body,
                          named=image_credentials.is_named(machine))
        except errors.Conflict:
            _check_owner(machine, device)
            raise

    retry.run(step, machine.options, machine.cluster.closing)


def _check_owner(machine, device):
    """Check that the VM owns the ConfigMap, if it exists.

    :raises: `errors.WrongState` if another object owns it
    """
    config_map = _config_map(machine, device)
    try:
        found = machine.cluster.client.get(*config_map)
    except errors.ObjectNotFound:
        return
    references = found['metadata'].get('ownerReferences') or [{}]
    if references[0].get('uid') != machine.uid:
        raise errors.WrongState(
            f'ConfigMap {machine.namespace}/{config_map[2]} is not owned by '
            f'this VM; delete it: the certificates of {device.id} are stored '
            'under that name')


def _remove(machine, device, key) -> None:
    config_map = _config_map(machine, device)
    client = machine.cluster.client

    def step() -> None:
        try:
            found = client.get(*config_map)
        except errors.ObjectNotFound:
            return
        if key not in (found.get('data') or {}):
            return
        if len(found['data']) > 1:
            client.patch(*config_map, [_owner_test(machine), {
                'op': 'remove', 'path': '/data/' + key}])
            return
        _check_owner(machine, device)
        client.delete(*config_map, {'preconditions': {
            'uid': found['metadata']['uid'],
            'resourceVersion': found['metadata']['resourceVersion']}})

    retry.run(step, machine.options, machine.cluster.closing)
