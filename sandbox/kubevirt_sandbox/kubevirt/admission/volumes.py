# SPDX-License-Identifier: Apache-2.0
"""Admission of volumes: one source each, within its rules.

Source: validateVolumes of vmi-create-admitter.go, data-volume-template.go
(KubeVirt 1.9).
"""

import base64
import binascii

from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt.admission import storage
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt.schema import volumes as volume_schema

_CLOUD_INIT_BYTES = 2048
_NAMES = {'configMap': 'name', 'secret': 'secretName',
          'serviceAccount': 'serviceAccountName'}


def check(field, volumes, config):
    """List causes to refuse volumes.

    :param field: the path of the list.
    """
    found, seen = [], {}
    for index, volume in enumerate(volumes):
        where = f'{field}[{index}]'
        name = volume.get('name', '')
        if name in seen:
            found.append(causes.Cause(
                f'{where} and {field}[{seen[name]}] must not have the same '
                'Name.', f'{where}.name'))
        seen.setdefault(name, index)
        found += _check_source(where, volume)
        for kind in ('cloudInitNoCloud', 'cloudInitConfigDrive'):
            if volume.get(kind) is not None:
                found += _check_cloud_init(f'{where}.{kind}', volume[kind])
        found += _check_gated(where, volume, config)
        for kind, key in _NAMES.items():
            if volume.get(kind) is not None and not volume[kind].get(key):
                found.append(causes.Cause(
                    f'{where}.{kind}.{key} is a required '
                    'field', f'{where}.{kind}.{key}'))
    for kind, words in (('serviceAccount', 'serviceAccount volume'),
                        ('downwardMetrics', 'downwardMetric volume'),
                        ('memoryDump', 'memory dump volume')):
        if sum(v.get(kind) is not None for v in volumes) > 1:
            found.append(causes.Cause(f'{field} must have max one {words} set',
                                      field))
    return found


def check_container_disks(field, volumes):
    """Check the paths of container disks."""
    for index, volume in enumerate(volumes):
        path = paths.at(volume, 'containerDisk', 'path')
        if path:
            yield from storage.check_path(
                f'{field}[{index}].containerDisk', path)


def _check_source(where, volume):
    if volume.get('dataVolume') is not None and not volume[
            'dataVolume'].get('name'):
        yield causes.Cause("DataVolume 'name' must be set", f'{where}.name',
                           causes.REQUIRED)
    if sum(volume.get(kind) is not None
           for kind in volume_schema.SOURCES) != 1:
        yield causes.Cause(f'{where} must have exactly one source type set',
                           where)


def _check_cloud_init(where, source):
    count = {}
    for what, word, ref in (('userData', 'userdatasource', 'secretRef'),
                            ('networkData', 'networkdata source',
                             'networkDataSecretRef')):
        encoded, plain = source.get(f'{what}Base64'), source.get(what)
        length = len(plain.encode()) if plain else 0
        if encoded and not plain:
            try:
                length = len(base64.b64decode(encoded, validate=True))
            except (binascii.Error, ValueError):
                field = f'{where}.{what}Base64'
                kind = where.rpartition('.')[2]
                yield causes.Cause(
                    f'{field}.{kind}.{what}Base64 is not a valid '
                    'base64 value.', field)
        count[what] = sum((bool(paths.at(source, ref, 'name')),
                           bool(encoded), bool(plain)))
        if count[what] > 1:
            yield causes.Cause(f'{where} must have only one {word} set.',
                               where)
        if length > _CLOUD_INIT_BYTES:
            yield causes.Cause(
                f'{where} {what.lower()} exceeds {_CLOUD_INIT_BYTES} byte '
                f'limit. Should use {what[0].upper()}{what[1:]}SecretRef '
                'for larger data.', where)
    if not any(count.values()):
        yield causes.Cause(f'{where} must have at least one userdatasource or '
                           'one networkdatasource set.', where)


def _check_gated(where, volume, config):
    if (volume.get('downwardMetrics') is not None
            and not config.enabled('DownwardMetrics')):
        yield causes.Cause('downwardMetrics disks are not allowed: '
                           'DownwardMetrics feature gate is not enabled.',
                           where)
    host = volume.get('hostDisk')
    if host is None:
        return
    where = f'{where}.hostDisk'
    if not config.enabled('HostDisk'):
        yield causes.Cause('HostDisk feature gate is not enabled',
                           where.rpartition('.')[0])
    if not host.get('path'):
        yield causes.Cause(f'{where}.path is required for hostDisk volume',
                           f'{where}.path', causes.NOT_FOUND)
    kind = host.get('type', '')
    if kind not in ('Disk', 'DiskOrCreate'):
        yield causes.Cause(f"{where}.type has invalid value '{kind}', allowed "
                           "are 'Disk' or 'DiskOrCreate'", f'{where}.type')
    if kind == 'Disk' and quantity.value(host.get('capacity')):
        yield causes.Cause(f'{where}.capacity is allowed to pass only with '
                           f"{where}.type equal to 'DiskOrCreate'",
                           f'{where}.capacity')


def check_used(field, spec):
    """Check that a disk or filesystem uses every volume of a VMI.

    :param field: the path of the VMI's spec.
    """
    shown = {d.get('name') for d in paths.disks(spec)} | {
        f.get('name') for f in paths.at(
            spec, 'domain', 'devices', 'filesystems') or ()}
    for index, volume in enumerate(paths.volumes(spec)):
        if volume.get('memoryDump') is None and volume['name'] not in shown:
            where = f'{field}.domain.volumes[{index}].name'
            yield causes.Cause(f"{where} '{volume['name']}' not found.", where)


def check_templates(field, spec):
    """Check the DataVolume templates of a VM.

    :param field: the path of the VM's spec.
    """
    volumes = paths.volumes(paths.at(spec, 'template', 'spec'))
    names = {paths.at(v, 'persistentVolumeClaim', 'claimName')
             for v in volumes} | {paths.at(v, 'dataVolume', 'name')
                                  for v in volumes}
    for index, template in enumerate(spec.get('dataVolumeTemplates') or ()):
        where = f'{field}.dataVolumeTemplate[{index}]'
        wrong = _check_template(where, template)
        if wrong:
            yield wrong
        elif paths.at(template, 'metadata', 'name') not in names:
            yield causes.Cause(
                f'DataVolumeTemplate entry {where} must be referenced in '
                "the VMI template's 'volumes' list", where, causes.REQUIRED)


def _check_template(where, template):
    """Return the first cause to refuse a template, or None."""
    if not paths.at(template, 'metadata', 'name'):
        return causes.Cause(f"'name' field must not be empty for "
                            f'DataVolumeTemplate entry {where}.name.',
                            f'{where}.name', causes.REQUIRED)
    spec = template.get('spec') or {}
    targets = [spec[k] for k in ('pvc', 'storage') if spec.get(k) is not None]
    if not targets:
        return causes.Cause('Missing Data volume PVC or Storage',
                            f'{where}.PVC.Storage')
    if len(targets) > 1:
        return causes.Cause(
            'Duplicate storage definition, both target storage '
            'and target pvc defined', f'{where}.PVC.Storage')
    external = any(targets[0].get(k) for k in ('dataSource', 'dataSourceRef'))
    sources = [k for k in ('source', 'sourceRef') if spec.get(k) is not None]
    if external and sources:
        return causes.Cause(
            'External population is incompatible with Source and '
            'SourceRef', f'{where}.source')
    if not external and not sources:
        return causes.Cause(
            'Data volume should have either Source, SourceRef, '
            'or be externally populated',
            f'{where}.source.sourceRef')
    if spec.get('source') is not None:
        number = sum(v is not None for v in spec['source'].values())
        if number == 0:
            return causes.Cause('Missing dataVolume valid source',
                                f'{where}.source')
        if number > 1:
            return causes.Cause('Multiple dataVolume sources',
                                f'{where}.source')
    return None
