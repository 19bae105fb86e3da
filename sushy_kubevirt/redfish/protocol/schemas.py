# SPDX-License-Identifier: Apache-2.0
"""The schemas that describe the resources, all of them DMTF's.

Which are in use is what the modules that answer say in ``@odata.type``, and
to the functions called ``collection``; it is read out of their source, so
that nobody has to write it down twice.
`tests/functional/redfish/test_links.py` sees that none is missing.
"""

import functools
import inspect
import re

from sushy_kubevirt.redfish.protocol import messages

#: Where DMTF publishes them.
PUBLISHED = 'http://redfish.dmtf.org/schemas/v1/'

_VERSIONED = re.compile(r'#([A-Z]\w+)\.(v\d+_\d+_\d+)\b')
_COLLECTION = re.compile(r'#([A-Z]\w+Collection)\.')
_CALL = re.compile(r"\bcollection\(\s*'([A-Z]\w+?)(?:Collection)?'")

#: Beside what is found in modules: what a resource inherits from, the
#: objects of many, and what is pushed and is no resource.
ALWAYS_USED = (('Event', None), ('RedfishError', None), ('Resource', None))


def json_uri(kind):
    """Where the JSON schema of a type is published.

    :param kind: ``@odata.type``
    """
    return f"{PUBLISHED}{kind.lstrip('#').rpartition('.')[0]}.json"


def csdl_uri(name):
    """Where the CSDL of a schema is published.

    :param name: without a version
    """
    return f'{PUBLISHED}{name}_v1.xml'


@functools.cache
def used_schemas(modules):
    """The schemas that modules name.

    :param modules: tuple of modules
    :returns: sorted list of (name, version), the version None for what has
        none
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
