# SPDX-License-Identifier: Apache-2.0
"""Names and labels of a BMC's objects, and which objects belong to it.

All names are derived from the BMC's name, so none is stored. Objects with
these names that others created are not changed: see `is_ours`.
"""

from __future__ import annotations

import functools
import hashlib
import re
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import spec

GROUP = stored_names.OPERATOR_GROUP
VERSION = 'v1beta1'
API_VERSION = f'{GROUP}/{VERSION}'
KIND = 'VirtualMachineBMC'
PLURAL = 'virtualmachinebmcs'

#: Label of all objects that the operator creates.
MANAGED_BY = 'app.kubernetes.io/managed-by'
OPERATOR = 'sushy-kubevirt-operator'

#: Label selector of these objects.
OURS = f'{MANAGED_BY}={OPERATOR}'

#: The Secret with the operator's certificate authority.
AUTHORITY = 'sushy-kubevirt-ca'

#: Suffix of names, as in KubeVirtBMC.
_SUFFIX = '-virtbmc'

#: Maximum length of a name without the suffixes ``-auth`` and ``-tls``. A name
#: of a Service (RFC 1035) and the value of a label have at most 63 characters.
_MAX_LENGTH = 63 - len('-auth')

_LABEL = re.compile(r'[a-z]([-a-z0-9]*[a-z0-9])?')

#: Oldest Kubernetes, (major, minor), of which names of Services may begin with
#: a digit (feature RelaxedServiceNameValidation).
DIGITS_SINCE = (1, 36)

_MAX_LABEL_LENGTH = 63


@functools.lru_cache(1024)
def base(name: str) -> str:
    """Make the name of a BMC's objects, or its prefix.

    A name that is not valid for a Service (too long, with dots, or starting
    with a digit) is replaced by one with a digest of it.

    :param name: of the BMC
    """
    whole = name + _SUFFIX
    if len(whole) <= _MAX_LENGTH and _LABEL.fullmatch(whole):
        return whole
    safe = re.sub(r'[^a-z0-9]+', '-', name)
    if not safe[:1].isalpha():
        safe = 'bmc-' + safe
    suffix = f'-{_digest(name)}{_SUFFIX}'
    return safe[:_MAX_LENGTH - len(suffix)].rstrip('-') + suffix


def vm_service(bmc: spec.Bmc) -> str | None:
    """Make the name of the Service under which KubeVirtBMC's clients look for
    the BMC of a VM.

    :returns: None if the BMC needs none: its VM is not named in KubeVirtBMC's
        field, or see `possible_vm_service`
    """
    return possible_vm_service(bmc) if bmc.by_ref else None


def possible_vm_service(bmc: spec.Bmc) -> str | None:
    """Make the name of the Service of `vm_service` that a BMC has, or has had
    while KubeVirtBMC's field named its VM.

    :returns: None if KubeVirtBMC cannot have made a Service for the VM, or the
        BMC's own Service has the name. A name that begins with a digit is
        valid from `DIGITS_SINCE` on.
    """
    name = bmc.vm.name + _SUFFIX
    if (name == base(bmc.name) or len(name) > _MAX_LABEL_LENGTH
            or not (name[0].isalnum() and _LABEL.fullmatch('a' + name))):
        return None
    return name


def begins_with_digit(name: str | None) -> bool:
    """Tell whether a Service may have a name from `DIGITS_SINCE` on only.

    :param name: of `vm_service`, or None
    """
    return name is not None and name[:1].isdigit()


def auth(name: str) -> str:
    """Return the name of the Secret with the BMC's credentials that the
    operator makes or copies.
    """
    return base(name) + '-auth'


def tls(name: str) -> str:
    """Return the name of the Secret with the operator's certificate."""
    return base(name) + '-tls'


def authority(name: str) -> str:
    """Return the name of the ConfigMap with the operator's CA certificate."""
    return base(name) + '-ca'


def route(bmc: spec.Bmc) -> str:
    """Make the name of the Route.

    OpenShift generates its host from ``<name>-<namespace>``, which has to be
    one label of DNS: a long name is replaced by one with a digest of it.
    """
    name, room = base(bmc.name), _MAX_LABEL_LENGTH - len(bmc.namespace) - 1
    if len(name) <= room:
        return name
    suffix = '-' + _digest(name)
    # If there is no room beside the namespace, the API server refuses the
    # Route and says so.
    return name[:max(room - len(suffix), 1)].rstrip('-') + suffix


def access(name: str, namespace: str, vm_namespace: str) -> str:
    """Return the name of the Role and RoleBinding in the VM's namespace."""
    if namespace == vm_namespace:
        return base(name)
    return f'{base(name)}-from-{namespace}'


# Of all pods of BMCs: PodMonitors and NetworkPolicies of users select it.
_APPLICATION = {'app.kubernetes.io/name': 'virtbmc'}

#: What the names of all objects of shards begin with.
SHARED_PREFIX = 'sushy-kubevirt-shared-'

_SHARED = re.compile(
    rf'{SHARED_PREFIX}(0|[1-9][0-9]*){_SUFFIX}'
    '(-[a-z]+(-[0-9]+)?)?')


def shared(shard: int) -> str:
    """Make the name of the objects of a shard of shared BMCs.

    :param shard: its number in its namespace
    """
    return f'{SHARED_PREFIX}{shard}{_SUFFIX}'


def shared_selector(shard: int) -> dict[str, str]:
    """Return the labels that the pod of a shard is selected by."""
    return {stored_names.SHARD: str(shard), **_APPLICATION}


def shared_labels(shard: int) -> dict[str, str]:
    """Return the labels of all objects of a shard."""
    return {**shared_selector(shard), MANAGED_BY: OPERATOR}


def shard_of(obj: objects.AnyObject) -> int | None:
    """Find the shard that an object was created for.

    :returns: its number; None for another object
    """
    number = shard_number(obj['metadata']['name'])
    label = (obj['metadata'].get('labels') or {}).get(stored_names.SHARD)
    return number if made_by_us(obj) and label == str(number) else None


def shard_number(name: str) -> int | None:
    """Find the shard whose objects may have a name.

    :param name: of an object
    :returns: its number; None for other names
    """
    match = _SHARED.fullmatch(name)
    return int(match[1]) if match else None


def label(name: str) -> str:
    """Return the value of `stored_names.BMC_NAME`."""
    if len(name) <= _MAX_LABEL_LENGTH:
        return name
    digest = _digest(name)
    prefix = name[:_MAX_LABEL_LENGTH - len(digest) - 1].rstrip('-.')
    return f'{prefix}-{digest}'


def selector(name: str) -> dict[str, str]:
    """Return the labels that pods are selected by; must never change."""
    return {stored_names.BMC_NAME: label(name), **_APPLICATION}


def labels(name: str) -> dict[str, str]:
    """Return the labels of all objects of a BMC."""
    return {**selector(name), MANAGED_BY: OPERATOR}


def owner(name: str, uid: str) -> objects.OwnerReference:
    """Return the owner reference of the objects of a BMC."""
    return {'apiVersion': API_VERSION, 'kind': KIND, 'name': name,
            'uid': uid, 'controller': True, 'blockOwnerDeletion': True}


def is_bmc(name: str, reference: objects.OwnerReference) -> bool:
    """Tell whether an owner reference names a BMC of any uid.

    :param name: of the BMC, in the object's namespace
    """
    return (reference['apiVersion'].partition('/')[0] == GROUP
            and (reference['kind'], reference['name']) == (KIND, name))


def metadata(bmc: spec.Bmc, name: str,
             namespace: str | None = None) -> objects.ObjectMeta:
    """Make the metadata of an object of a BMC.

    :param name: of the object
    :param namespace: of the object; default: the BMC's
    """
    meta: objects.ObjectMeta = {
        'name': name, 'namespace': namespace or bmc.namespace,
        'labels': labels(bmc.name)}
    if meta['namespace'] == bmc.namespace:
        meta['ownerReferences'] = [owner(bmc.name, bmc.uid)]
    else:
        meta['labels'][stored_names.BMC_NAMESPACE] = bmc.namespace
    return meta


def is_ours(bmc: spec.Bmc, obj: objects.AnyObject) -> bool:
    """Tell whether an object was created for this BMC, and may be changed.

    Without this check, the author of a BMC could make the operator overwrite
    objects of others by choosing the BMC's name.
    """
    meta = obj['metadata']
    if meta.get('namespace') == bmc.namespace:
        return any(reference.get('uid') == bmc.uid
                   and reference.get('controller')
                   for reference in meta.get('ownerReferences') or ())
    present = meta.get('labels') or {}
    return (present.get(MANAGED_BY) == OPERATOR
            and present.get(stored_names.BMC_NAME) == label(bmc.name)
            and present.get(stored_names.BMC_NAMESPACE) == bmc.namespace)


def made_by_us(obj: objects.AnyObject) -> bool:
    """Tell by its label whether the operator created an object."""
    return (obj['metadata'].get('labels') or {}).get(MANAGED_BY) == OPERATOR


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]
