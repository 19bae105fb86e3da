# SPDX-License-Identifier: Apache-2.0
"""Accessors for KubeVirt's objects with optional parts."""


def at(obj, *keys):
    """Return the value at a path, or None.

    :param obj: nested dicts, or None.
    :param keys: the keys on the way.
    """
    for key in keys:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


def disks(spec):
    """Return the disks of a VMI's spec, including CD-ROM drives and LUNs."""
    return at(spec, 'domain', 'devices', 'disks') or []


def interfaces(spec):
    """Return the network interfaces of a VMI's spec."""
    return at(spec, 'domain', 'devices', 'interfaces') or []


def volumes(spec):
    """Return the volumes of a VMI's spec."""
    return (spec or {}).get('volumes') or []


def networks(spec):
    """Return the networks of a VMI's spec."""
    return (spec or {}).get('networks') or []


def named(items):
    """Return a dict of items by their names."""
    return {item.get('name', ''): item for item in items}


def key(obj):
    """Return (namespace, name) of an object."""
    meta = obj['metadata']
    return meta.get('namespace', ''), meta['name']


def claim_name(volume):
    """Return the name of a volume's claim, or None.

    A DataVolume's claim has its name.
    """
    return (at(volume, 'persistentVolumeClaim', 'claimName')
            or at(volume, 'dataVolume', 'name')
            or at(volume, 'memoryDump', 'claimName')
            or at(volume, 'ephemeral', 'persistentVolumeClaim', 'claimName'))


def is_hotplug(volume):
    """Tell whether a volume can be hotplugged."""
    return bool(at(volume, 'persistentVolumeClaim', 'hotpluggable')
                or at(volume, 'dataVolume', 'hotpluggable'))
