# SPDX-License-Identifier: Apache-2.0
"""Whether an object is as it is to be.

The cluster adds to what it is given: defaults, addresses, labels of others.
So everything that was asked for has to be there, and lists have to have no
item more; further fields are no difference.
"""

import hashlib
import json

from sushy_kubevirt.kubevirt import quantity
from sushy_kubevirt.operator import naming

#: What stands for nothing, and may be left out by the cluster.
_NOTHING = ({}, [], '', None)

#: Fields that cannot be changed: an object that has another is made anew.
_IMMUTABLE = {'RoleBinding': ('roleRef',), 'Deployment': ('spec', 'selector')}

#: The cluster writes quantities its own way.
_QUANTITIES = ('requests', 'limits', 'sizeLimit')


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
    owners = its.get('ownerReferences') or ()
    if any(one not in owners for one in mine.get('ownerReferences') or ()):
        return True
    return any(_differs(wanted[name], live.get(name), name)
               for name in wanted if name not in (
                   'metadata', 'apiVersion', 'kind'))


def is_past_changing(wanted, live):
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
