# SPDX-License-Identifier: Apache-2.0
"""Certificates to verify image servers against, per device.

They are stored in a ConfigMap owned by the VM, from which CDI reads them. The
media annotation of the VM has their digests, so that listing certificates
costs no API call once their text was read.
"""

from __future__ import annotations

import hashlib
import ssl
import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import json_patch
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import datavolumes
from sushy_kubevirt.machine.media import image_credentials
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import tls
from sushy_kubevirt.machine import option_hints
from sushy_kubevirt.machine import options as machine_options

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects
    from sushy_kubevirt.machine.media import manager
    from sushy_kubevirt.machine import protocols
    from sushy_kubevirt.machine import vm_state

#: Maximum number of certificates of a device.
MAX_CERTIFICATES = 16

#: Key in CDI's ConfigMap of the certificates that the options name.
_OPTIONS_KEY = 'operator.pem'


def verify(machine: protocols.Machine, device: model.Device) -> bool:
    """See `machine.Machine.media_verify`."""
    record = media_annotation.read(machine.state().vm)
    return record.verify.get(device.id, machine.options.media.verify)


def verify_change(machine: protocols.Machine, device: model.Device,
                  value: bool) -> protocols.Step[None]:
    """Return a change of the default of `verify`, see `machine.changes`.

    :param value: whether certificates are verified
    """
    def change(state: vm_state.VmState) -> None:
        record = media_annotation.read(state.vm)
        if (device.id in record.verify
                or value != machine.options.media.verify):
            record.verify[device.id] = value
            media_annotation.write(state.vm, record)

    return change


def certificates(machine: manager.Machine, device: model.Device
                 ) -> tuple[model.Certificate, ...]:
    """See `machine.Machine.media_certificates`."""
    kept = media_annotation.read(machine.state().vm).certificates.get(
        device.id, {})
    known = machine.cluster.media.certificates
    if not all(digest in known for digest in kept.values()):
        for text in (_read(machine, device).get('data') or {}).values():
            known[_digest(text)] = text
    return tuple(model.Certificate(number, known[digest]) for number, digest
                 in sorted(kept.items(), key=lambda item: int(item[0]))
                 if digest in known)


def pem(machine: manager.Machine, device: model.Device) -> str:
    """Return the certificates of a device as one PEM text, '' for none."""
    return ''.join(certificate.pem
                   for certificate in certificates(machine, device))


def add(machine: manager.Machine, device: model.Device, text: str
        ) -> model.Certificate:
    """See `machine.Machine.add_media_certificate`."""
    text = _checked(text)
    digest = _digest(text)
    number, added = '', False

    def step(state: vm_state.VmState) -> None:
        nonlocal number, added
        record = media_annotation.read(state.vm)
        kept = record.certificates.setdefault(device.id, {})
        for known, known_digest in kept.items():
            if known_digest == digest:
                number = known
                return
        if len(kept) >= MAX_CERTIFICATES:
            raise errors.WrongState(
                f'{device.id} of {machine.qualified_name} already has '
                f'{len(kept)} certificates; delete one first')
        number = str(next(n for n in range(1, MAX_CERTIFICATES + 1)
                          if str(n) not in kept))
        kept[number] = digest
        added = True
        json_patch.send(machine, state.vm,
                        media_annotation.with_record(state.vm, record))

    machine.write(step)
    try:
        _put(machine, device, number + '.pem', text)
    except errors.MachineError:
        if added:
            machine.write(lambda state: _drop(
                machine, device, state.vm, number))
        raise
    machine.cluster.media.certificates[digest] = text
    return model.Certificate(number, text)


def delete(machine: protocols.Machine, device: model.Device,
           number: str) -> None:
    """See `machine.Machine.delete_media_certificate`."""
    record = media_annotation.read(machine.state().vm)
    if number not in record.certificates.get(device.id, {}):
        raise errors.InvalidValue(
            'Certificate', number,
            message=f'{device.id} of {machine.qualified_name} has no '
            f'certificate {number}')

    machine.write(lambda state: _drop(machine, device, state.vm, number))
    _remove(machine, device, number + '.pem')


def _drop(machine: protocols.Machine, device: model.Device,
          vm: objects.VirtualMachine, number: str) -> None:
    """Remove a certificate from the record, if it is there."""
    record = media_annotation.read(vm)
    if record.certificates.get(device.id, {}).pop(number, None):
        json_patch.send(machine, vm,
                        media_annotation.with_record(vm, record))


def bundle(machine: protocols.Machine) -> str:
    """Read the certificates in the ConfigMap that the options name.

    :returns: PEM text; '' if they name none
    :raises: `errors.WrongState` if it has no certificates
    """
    options = machine.options.media
    if not options.ca_config_map:
        return ''
    try:
        data = machine.cluster.client.get(
            api_resources.CONFIG_MAP, machine.namespace,
            options.ca_config_map).get('data') or {}
        problem = f'has no PEM certificate under {machine_options.CA_KEY}'
    except errors.ObjectNotFound:
        data, problem = {}, 'does not exist'
    text = ''.join(tls.certificates(data.get(machine_options.CA_KEY, '')))
    if text:
        try:
            tls.context(True, text, system=False)
            return text
        except errors.ConfigError as e:
            problem = f'is not usable: {e}'
    raise errors.WrongState(
        f'ConfigMap {machine.namespace}/{options.ca_config_map} {problem}, '
        'so servers of images cannot be verified. Put the CA certificates '
        f'of these servers under its key {machine_options.CA_KEY}'
        + option_hints.hint(options, 'ca_config_map', ', or change {}'))


def publish(machine: protocols.Machine, device: model.Device, bundle: str
            ) -> str | None:
    """Make sure that CDI's ConfigMap has the certificates of a device.

    :param bundle: see the function of that name
    :returns: name of the ConfigMap; None if there are no certificates
    """
    path = machine.options.media.ca_file
    text = (tls.read(path) if path else '') + bundle
    if text:
        _put(machine, device, _OPTIONS_KEY, text)
    elif media_annotation.read(
            machine.state().vm).certificates.get(device.id):
        # CDI trusts all that is there.
        _remove(machine, device, _OPTIONS_KEY)
    else:
        return None
    return media_annotation.ca_config_map(machine.name, device.id)


def _checked(text: object) -> str:
    """Parse one certificate into the form that is stored.

    :raises: `errors.InvalidValue`
    """
    parts = tls.certificates(text) if isinstance(text, str) else []
    if len(parts) == 1:
        try:
            ssl.create_default_context(cadata=parts[0])
            return parts[0]
        except (ssl.SSLError, ValueError):
            pass
    raise errors.InvalidValue(
        'CertificateString', '', message='CertificateString has to be one '
        'certificate in PEM format')


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# The ConfigMap

def _config_map(machine: protocols.Machine, device: model.Device
                ) -> tuple[api_resources.Resource[objects.Json], str, str]:
    """Return the parameters of the client's methods."""
    return (api_resources.CONFIG_MAP, machine.namespace,
            media_annotation.ca_config_map(machine.name, device.id))


def _owner_test(machine: protocols.Machine) -> objects.Json:
    return {'op': 'test', 'path': '/metadata/ownerReferences/0/uid',
            'value': machine.uid}


def _read(machine: protocols.Machine, device: model.Device) -> objects.Json:
    """Return the ConfigMap, {} if it does not exist."""
    try:
        return machine.cluster.client.get(*_config_map(machine, device))
    except errors.ObjectNotFound:
        return {}


def _put(machine: protocols.Machine, device: model.Device, key: str,
         text: str) -> None:
    config_map = _config_map(machine, device)
    client = machine.cluster.client
    body = {
        'apiVersion': api_resources.CONFIG_MAP.api_version,
        'kind': api_resources.CONFIG_MAP.kind,
        'metadata': {'name': config_map[2], 'namespace': machine.namespace,
                     'labels': {stored_names.MEDIA_LABEL: device.id},
                     'ownerReferences': [datavolumes.owner(machine)]},
        'data': {key: text}}

    def step() -> None:
        try:
            client.patch(*config_map, [_owner_test(machine), {
                'op': 'add', 'path': '/data/' + key, 'value': text}])
        except errors.ObjectNotFound:
            client.create(*config_map[:2], body,
                          named=image_credentials.is_named(machine))
        except errors.Conflict:
            _check_owner(machine, device)
            raise

    retry.run(step, machine.options.write_deadline,
              machine.cluster.closing)


def _check_owner(machine: protocols.Machine, device: model.Device
                 ) -> None:
    """Check that the VM owns the ConfigMap, if it exists.

    :raises: `errors.WrongState` if another object owns it
    """
    body = _read(machine, device)
    if not body:
        return
    references = body['metadata'].get('ownerReferences') or [{}]
    if references[0].get('uid') != machine.uid:
        name = body['metadata']['name']
        raise errors.WrongState(
            f'ConfigMap {machine.namespace}/{name} is not owned by '
            f'this VM; delete it: the certificates of {device.id} are stored '
            'under that name')


def _remove(machine: protocols.Machine, device: model.Device,
            key: str) -> None:
    config_map = _config_map(machine, device)
    client = machine.cluster.client

    def step() -> None:
        body = _read(machine, device)
        if key not in (body.get('data') or {}):
            return
        if len(body['data']) > 1:
            client.patch(*config_map, [_owner_test(machine), {
                'op': 'remove', 'path': '/data/' + key}])
            return
        _check_owner(machine, device)
        client.delete(*config_map, {'preconditions': {
            'uid': body['metadata']['uid'],
            'resourceVersion': body['metadata']['resourceVersion']}})

    retry.run(step, machine.options.write_deadline,
              machine.cluster.closing)
