# SPDX-License-Identifier: Apache-2.0
"""Accessors for KubeVirt's objects with optional parts."""


def at(obj, *keys):
    """What stands at a path, or None.

    :param obj: nested dicts, or None.
    :param keys: the keys on the way.
    """
    for key in keys:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


def disks(spec):
    """The disks of a VMI's spec, CD-ROM drives and LUNs among them."""
    return at(spec, 'domain', 'devices', 'disks') or []


def interfaces(spec):
    """The network cards of a VMI's spec."""
    return at(spec, 'domain', 'devices', 'interfaces') or []


def volumes(spec):
    """The volumes of a VMI's spec."""
    return (spec or {}).get('volumes') or []


def networks(spec):
    """The networks of a VMI's spec."""
    return (spec or {}).get('networks') or []


def named(items):
    """The same items in a dict by their names."""
    return {item.get('name', ''): item for item in items}


def key(obj):
    """(namespace, name) of an object."""
    meta = obj['metadata']
    return meta.get('namespace', ''), meta['name']


def claim_name(volume):
    """The claim behind a volume, or None.

    A DataVolume's claim has its name.
    """
    return (at(volume, 'persistentVolumeClaim', 'claimName')
            or at(volume, 'dataVolume', 'name')
            or at(volume, 'memoryDump', 'claimName')
            or at(volume, 'ephemeral', 'persistentVolumeClaim', 'claimName'))


def is_hotplug(volume):
    """Whether a volume may come and go while the machine runs."""
    return bool(at(volume, 'persistentVolumeClaim', 'hotpluggable')
                or at(volume, 'dataVolume', 'hotpluggable'))
