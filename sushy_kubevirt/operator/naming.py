# SPDX-License-Identifier: Apache-2.0
"""What the objects of a BMC are called, and how they are known as its own.

All names follow from the BMC's, so that they need not be remembered
anywhere. Objects of these names that somebody else made are left alone: see
`is_ours`.
"""

import hashlib
import re

GROUP = 'bmc.kubevirt.io'
VERSION = 'v1beta1'
API_VERSION = f'{GROUP}/{VERSION}'
KIND = 'VirtualMachineBMC'
PLURAL = 'virtualmachinebmcs'

#: Label with the name of the BMC; KubeVirtBMC's users select by it.
LABEL = 'kubevirt.io/virtualmachinebmc-name'

#: Label with the namespace of the BMC, on what lies in another one.
NAMESPACE_LABEL = GROUP + '/namespace'

#: Label by which the operator finds all that is its own.
MANAGED_BY = 'app.kubernetes.io/managed-by'
OPERATOR = 'sushy-kubevirt-operator'

#: The selector for that.
OURS = f'{MANAGED_BY}={OPERATOR}'

#: The Secret with the operator's certificate authority.
AUTHORITY = 'sushy-kubevirt-ca'

#: Finalizer of a BMC that has objects in another namespace, which no owner
#: reference reaches.
FINALIZER = GROUP + '/elsewhere'

#: Annotation of what is made: a digest of what was asked for. What somebody
#: else changed is told from what is to be changed by it.
APPLIED = GROUP + '/applied'

#: Annotation of a Deployment that an upgrade has stopped, until its pod is
#: ready again.
UPGRADING = GROUP + '/upgrading'

#: KubeVirtBMC's ending.
_ENDING = '-virtbmc'

#: The longest name of ours, that of a Service or in a label, has 63 letters
#: (RFC 1035); the endings ``-auth`` and ``-tls`` must fit.
_LONGEST = 63 - len('-auth')

_LABEL = re.compile(r'[a-z]([-a-z0-9]*[a-z0-9])?')

_LONGEST_LABEL = 63


def base(name):
    """The name that a BMC's objects have, or begin with.

    A name that is none for a Service (too long, with dots, or with a digit
    at its start) is changed into one; a digest of it keeps two such apart.

    :param name: of the BMC
    """
    whole = name + _ENDING
    if len(whole) <= _LONGEST and _LABEL.fullmatch(whole):
        return whole
    safe = re.sub(r'[^a-z0-9]+', '-', name)
    if not safe[:1].isalpha():
        safe = 'bmc-' + safe
    ending = f'-{_digest(name)}{_ENDING}'
    return safe[:_LONGEST - len(ending)].rstrip('-') + ending


def auth(name):
    """The Secret that the operator makes, or copies, for a BMC."""
    return base(name) + '-auth'


def tls(name):
    """The Secret with the certificate that the operator issues."""
    return base(name) + '-tls'


def authority(name):
    """The ConfigMap with the certificate of the operator's authority."""
    return base(name) + '-ca'


def access(name, namespace, vm_namespace):
    """The Role and the RoleBinding, which are where the VM is."""
    if namespace == vm_namespace:
        return base(name)
    return f'{base(name)}-from-{namespace}'


def label(name):
    """The value of `LABEL`."""
    if len(name) <= _LONGEST_LABEL:
        return name
    digest = _digest(name)
    return f"{name[:_LONGEST_LABEL - len(digest) - 1].rstrip('-.')}-{digest}"


def selector(name):
    """The labels that pods are selected by, which never change."""
    return {LABEL: label(name), 'app.kubernetes.io/name': 'virtbmc'}


def labels(name):
    """The labels of all objects of a BMC."""
    return {**selector(name), MANAGED_BY: OPERATOR}


def owner(name, uid):
    """The owner reference that objects of a BMC carry."""
    return {'apiVersion': API_VERSION, 'kind': KIND, 'name': name,
            'uid': uid, 'controller': True, 'blockOwnerDeletion': True}


def metadata(bmc, name, namespace=None):
    """Metadata of an object of a BMC.

    :param bmc: a `spec.Bmc`
    :param name: of the object
    :param namespace: where it is; the BMC's when left out
    """
    made = {'name': name, 'namespace': namespace or bmc.namespace,
            'labels': labels(bmc.name)}
    if made['namespace'] == bmc.namespace:
        made['ownerReferences'] = [owner(bmc.name, bmc.uid)]
    else:
        made['labels'][NAMESPACE_LABEL] = bmc.namespace
    return made


def is_ours(bmc, obj):
    """Whether an object was made for this BMC, and may be changed.

    Else whoever may make a BMC could have the operator overwrite what is
    somebody else's, by a name that fits.

    :param bmc: a `spec.Bmc`
    :param obj: dict
    """
    found = obj['metadata']
    if found.get('namespace') == bmc.namespace:
        return any(reference.get('uid') == bmc.uid
                   and reference.get('controller')
                   for reference in found.get('ownerReferences') or ())
    tags = found.get('labels') or {}
    return (tags.get(MANAGED_BY) == OPERATOR
            and tags.get(LABEL) == label(bmc.name)
            and tags.get(NAMESPACE_LABEL) == bmc.namespace)


def made_by_us(obj):
    """Whether an object says that the operator made it."""
    return (obj['metadata'].get('labels') or {}).get(MANAGED_BY) == OPERATOR


def _digest(name):
    return hashlib.sha256(name.encode()).hexdigest()[:8]
