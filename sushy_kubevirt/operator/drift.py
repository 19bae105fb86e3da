# SPDX-License-Identifier: Apache-2.0
"""Compares an object with its desired state.

The cluster adds defaults and addresses, others add labels. So an object must
have everything that is desired, and lists must have no further items. Other
fields are a difference if managedFields say that another client set them in a
part that is the operator's alone; metadata and status are open to others.
"""

import hashlib
import json

from sushy_kubevirt.kube import quantity
from sushy_kubevirt.operator import naming

#: Empty values, which the cluster may leave out.
_NOTHING = ({}, [], '', None)

#: Immutable fields: an object with another value is recreated.
_IMMUTABLE = {'RoleBinding': ('roleRef',), 'Deployment': ('spec', 'selector')}

#: Fields with quantities, which the cluster may write in another form.
_QUANTITIES = ('requests', 'limits', 'sizeLimit')


#: Parts of an object that are the operator's alone, as in managedFields.
_ALONE = ('f:spec', 'f:data', 'f:rules', 'f:subjects')

#: What ``kubectl rollout restart`` writes into a Deployment.
_RESTART = ('f:spec', 'f:template', 'f:metadata', 'f:annotations')

#: Field of a Service that others may set: load balancer controllers do, such
#: as kube-vip's cloud provider.
_ADDRESS = 'f:loadBalancerIP'


def digest(wanted):
    """Make a digest of a desired object.

    :param wanted: dict
    :returns: short text
    """
    return hashlib.sha256(json.dumps(
        wanted, sort_keys=True).encode()).hexdigest()[:16]


def asked(live):
    """Find the digest of the desired object that was last written.

    :param live: dict, as the API has it
    """
    return (live['metadata'].get('annotations') or {}).get(naming.APPLIED)


def differs(wanted, live):
    """Tell whether an object differs from the desired one.

    :param wanted: dict, the desired object
    :param live: dict, as the API has it
    """
    mine, its = wanted['metadata'], live['metadata']
    for name in ('labels', 'annotations'):
        if _differs(mine.get(name) or {}, its.get(name) or {}):
            return True
    if touched(live):
        return True
    owners = its.get('ownerReferences') or ()
    if any(one not in owners for one in mine.get('ownerReferences') or ()):
        return True
    return any(_differs(wanted[name], live.get(name), name)
               for name in wanted if name not in (
                   'metadata', 'apiVersion', 'kind'))


def touched(live):
    """Find other clients that own fields in parts that are the operator's.

    Fields that do not exist any more are ignored: when the type of a Service
    changes, the API server removes the fields of the type, and leaves their
    owners in managedFields.

    :param live: dict, as the API has it
    :returns: list of entries of managedFields, with no more than is needed
        to be found again
    """
    found = []
    for entry in live['metadata'].get('managedFields') or ():
        if (entry.get('manager') == naming.OPERATOR
                or entry.get('subresource')):
            continue
        fields = entry.get('fieldsV1') or {}
        parts = {part: {'.': {}} for part in _ALONE
                 if part in fields and not _is_address(fields, part)
                 and not _is_restart(fields, part)
                 and _is_there(fields[part], live.get(part[2:]))}
        if parts:
            found.append({'manager': entry.get('manager', ''),
                          'fieldsV1': parts})
    return found


def _is_there(fields, value):
    """Tell whether any of a set of fields is in a value.

    :param fields: dict, as in managedFields
    """
    if not fields:
        return value is not None
    return any(_has(name, inner, value) for name, inner in fields.items())


def _has(name, inner, value):
    what, _, of = name.partition(':')
    if what == 'f' and isinstance(value, dict):
        return of in value and _is_there(inner, value[of])
    if what in ('k', 'v') and isinstance(value, list):
        try:
            of = json.loads(of)
        except (ValueError, RecursionError):
            # No item has such a key.
            return False
        if what == 'v':
            return of in value
        return isinstance(of, dict) and any(
            _is_there(inner, one) for one in value
            if isinstance(one, dict) and of.items() <= one.items())
    # The whole value, or an item by its index.
    return value is not None


def _is_address(fields, part):
    """Tell whether a part has nothing but a load balancer's address."""
    return set(fields[part]) - {'.'} == {_ADDRESS}


def _is_restart(fields, part):
    """Tell whether a part has nothing but the annotation of a restart."""
    if part != _RESTART[0]:
        return False
    for name, inner in zip(_RESTART, _RESTART[1:]):
        fields = fields[name]
        if set(fields) - {'.'} != {inner}:
            return False
    return True


def must_recreate(wanted, live):
    """Tell whether an object has to be deleted and created again.

    :param wanted: dict
    :param live: dict, as the API has it
    """
    path = _IMMUTABLE.get(wanted['kind'], ())
    for name in path:
        wanted, live = wanted[name], live.get(name) or {}
    return bool(path) and wanted != live


def _differs(wanted, live, name='', quantities=False):
    if wanted in _NOTHING:
        return live not in _NOTHING and not isinstance(wanted, dict)
    quantities = quantities or name in _QUANTITIES
    if isinstance(wanted, dict):
        return not isinstance(live, dict) or any(
            _differs(value, live.get(key), key, quantities)
            for key, value in wanted.items())
    if isinstance(wanted, list):
        return (not isinstance(live, list) or len(live) != len(wanted)
                or any(_differs(one, other, '', quantities)
                       for one, other in zip(wanted, live)))
    if quantities and live is not None:
        return quantity.to_decimal(wanted) != quantity.to_decimal(live)
    return wanted != live
