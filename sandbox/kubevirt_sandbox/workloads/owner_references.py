# SPDX-License-Identifier: Apache-2.0
"""Owner references of controllers."""


def reference(owner):
    """Return the ownerReference to a controller.

    :param owner: the object that owns.
    """
    return {'apiVersion': owner['apiVersion'], 'kind': owner['kind'],
            'name': owner['metadata']['name'],
            'uid': owner['metadata']['uid'], 'controller': True,
            'blockOwnerDeletion': True}


def controller(obj):
    """Return the reference to the controller of an object, or None."""
    for one in obj['metadata'].get('ownerReferences') or ():
        if one.get('controller'):
            return one
    return None


def ends(obj):
    """Tell whether an object is being deleted."""
    return 'deletionTimestamp' in obj['metadata']
