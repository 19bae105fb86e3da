# SPDX-License-Identifier: Apache-2.0
"""The DMTF schemas that the resources use.

They are read from the source of the modules: every ``@odata.type`` and every
call of ``collection()``. A new resource needs no entry here;
`tests/functional/redfish/test_links.py` checks that none is missing.
"""

from __future__ import annotations

import functools
import inspect
import re

from sushy_kubevirt.redfish.protocol import messages

#: Where DMTF publishes the schemas.
PUBLISHED = 'http://redfish.dmtf.org/schemas/v1/'

_VERSIONED = re.compile(r'#([A-Z]\w+)\.(v\d+_\d+_\d+)\b')
_COLLECTION = re.compile(r'#([A-Z]\w+Collection)\.')
_CALL = re.compile(
    r"\b(?:machine_)?collection\(\s*'([A-Z]\w+?)(?:Collection)?'")

#: Used in addition to those found in modules: base types, error bodies and
#: pushed events.
ALWAYS_USED = (('Event', None), ('RedfishError', None), ('Resource', None))


def json_uri(kind) -> str:
    """Return the URI at which DMTF publishes the JSON schema of a type.

    :param kind: ``@odata.type``
    """
    return f"{PUBLISHED}{kind.lstrip('#').rpartition('.')[0]}.json"


def csdl_uri(name) -> str:
    """Return the URI at which DMTF publishes the CSDL of a schema.

    :param name: schema without version
    """
    return f'{PUBLISHED}{name}_v1.xml'


@functools.cache
def used_schemas(modules):
    """List the schemas that modules use.

    :param modules: tuple of modules
    :returns: sorted list of (name, version); version None for unversioned
        schemas
    """
    found = set()
    for module in (messages, *modules):
        source = inspect.getsource(module)
        found.update(_VERSIONED.findall(source))
        found.update((name, None) for name in _COLLECTION.findall(source))
        found.update((name + 'Collection', None)
                     for name in _CALL.findall(source))
        for registry in getattr(module, 'REGISTRIES', ()):
            found.update(_VERSIONED.findall(
                registry.document()['@odata.type']))
    return sorted(found, key=lambda one: (one[0], one[1] or ''))
