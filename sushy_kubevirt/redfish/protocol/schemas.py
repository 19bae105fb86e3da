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
import typing

from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import responses

if typing.TYPE_CHECKING:
    import types

#: Where DMTF publishes the schemas.
PUBLISHED = 'http://redfish.dmtf.org/schemas/v1/'

_VERSIONED = r'#([A-Z]\w+)\.(v\d+_\d+_\d+)\b'
_COLLECTION = r'#([A-Z]\w+Collection)\.'
_CALL = r"\b(?:machine_)?collection\(\s*'([A-Z]\w+?)(?:Collection)?'"

#: Used in addition to those found in modules: base types, error bodies and
#: pushed events.
ALWAYS_USED = (('Event', None), ('RedfishError', None), ('Resource', None))


def json_uri(kind: str) -> str:
    """Return the URI at which DMTF publishes the JSON schema of a type.

    :param kind: ``@odata.type``
    """
    return f"{PUBLISHED}{kind.lstrip('#').rpartition('.')[0]}.json"


def csdl_uri(name: str) -> str:
    """Return the URI at which DMTF publishes the CSDL of a schema.

    :param name: schema without version
    """
    return f'{PUBLISHED}{name}_v1.xml'


@functools.cache
def used_schemas(modules: tuple[types.ModuleType, ...]
                 ) -> list[tuple[str, str | None]]:
    """List the schemas that modules use.

    :returns: names and versions, sorted; version None for unversioned schemas
    """
    used: set[tuple[str, str | None]] = set()
    for module in (messages, responses, *modules):
        source = inspect.getsource(module)
        used.update(re.findall(_VERSIONED, source))
        used.update((name, None) for name in re.findall(_COLLECTION, source))
        used.update((name + 'Collection', None)
                    for name in re.findall(_CALL, source))
        for registry in getattr(module, 'REGISTRIES', ()):
            used.update(re.findall(
                _VERSIONED, registry.document()['@odata.type']))
    return sorted(used, key=lambda schema: (schema[0], schema[1] or ''))
