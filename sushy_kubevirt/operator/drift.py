# SPDX-License-Identifier: Apache-2.0
"""Whether an object is as it is to be.

The cluster adds to what it is given: defaults, addresses, labels of others.
So everything that was asked for has to be there, and lists have to have no
item more. Further fields are a difference if somebody else put them there,
which managedFields tell; what controllers may add is in metadata and status.
"""

import hashlib
import json

from sushy_kubevirt.kube import quantity
from sushy_kubevirt.operator import naming

#: What stands for nothing, and may be left out by the cluster.
_NOTHING = ({}, [], '', None)

#: Fields that cannot be changed: an object that has another is made anew.
_IMMUTABLE = {'RoleBinding': ('roleRef',), 'Deployment': ('spec', 'selector')}

#: The cluster writes quantities its own way.
_QUANTITIES = ('requests', 'limits', 'sizeLimit')


#: Parts of an object that are the operator's alone, as managedFields have
#: them.
_ALONE = ('f:spec', 'f:data', 'f:rules', 'f:subjects')

#: What ``kubectl rollout restart`` writes into a Deployment.
_RESTART = ('f:spec', 'f:template', 'f:metadata', 'f:annotations')

#: What is left to others of a Service: makers of load balancers give it an
#: address, such as kube-vip's cloud provider.
_ADDRESS = 'f:loadBalancerIP'


def digest(wanted):
    """What changes when something else is asked for.

    :param wanted: dict, an object that is to be
    :returns: short text
    """
    return hashlib.sha256(json.dumps(
        wanted, sort_keys=True).encode()).hexdigest()[:16]


def asked(live):
    """The digest of what an object was made, or last changed, by.

    :param live: dict, as the API has it
    """
    return (live['metadata'].get('annotations') or {}).get(naming.APPLIED)


def differs(wanted, live):
    """Whether an object lacks what it is to have, or has too much.

    :param wanted: dict
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
    """Who else has fields in what is the operator's alone.

    A field that is there no more is nobody's: of a Service whose type
    changes, the API server takes away what belongs to the type, and leaves
    in managedFields whose that was.

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
    """Whether anything of a set of fields is in a value.

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
            # No item is like that.
            return False
        if what == 'v':
            return of in value
        return isinstance(of, dict) and any(
            _is_there(inner, one) for one in value
            if isinstance(one, dict) and of.items() <= one.items())
    # All of it, or an item by its number.
    return value is not None


def _is_address(fields, part):
    """Whether nothing but the address of a load balancer is in a part."""
    return set(fields[part]) - {'.'} == {_ADDRESS}


def _is_restart(fields, part):
    """Whether nothing but a restart is in a part."""
    if part != _RESTART[0]:
        return False
    for name, inner in zip(_RESTART, _RESTART[1:]):
        fields = fields[name]
        if set(fields) - {'.'} != {inner}:
            return False
    return True


def must_recreate(wanted, live):
    """Whether an object has to be deleted and made anew.

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
        return quantity.exact(wanted) != quantity.exact(live)
    return wanted != live
