# SPDX-License-Identifier: Apache-2.0
"""Values of Secrets, ConfigMaps and a pod's own fields.

Used for the environment of containers and for mounted files.
"""

import base64
import math
import re

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import quantity

_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class Missing(Exception):
    """An object or key that a pod needs does not exist (yet)."""


class Fields:
    """Values for one pod from its fields, Secrets and ConfigMaps.

    :param store: the store.
    :param pod: function that returns the pod as it is now.
    """

    def __init__(self, store, pod):
        self._store = store
        self._pod = pod

    def data(self, kind, name, optional=False):
        """Return the data of a Secret or a ConfigMap.

        :param kind: :data:`core.SECRET` or :data:`core.CONFIG_MAP`.
        :returns: ``{key: bytes}``; None when it is optional and missing.
        :raises Missing: the object does not exist.
        """
        found = self._store.find(
            kind, self._pod()['metadata']['namespace'], name)
        if found is None:
            if optional:
                return None
            raise Missing(f'{kind.singular} "{name}" not found')
        if kind is core.SECRET:
            return {key: base64.b64decode(value) for key, value in (
                found.get('data') or {}).items()}
        return {**{key: value.encode() for key, value in (
            found.get('data') or {}).items()},
            **{key: base64.b64decode(value) for key, value in (
                found.get('binaryData') or {}).items()}}

    def key(self, kind, reference):
        """Return one value of a Secret or a ConfigMap, as text, or None.

        :param reference: dict with ``name``, ``key``, ``optional``.
        :raises Missing: the object or key does not exist.
        """
        optional = reference.get('optional', False)
        data = self.data(kind, reference.get('name', ''), optional)
        if data is None:
            return None
        if reference.get('key') not in data:
            if optional:
                return None
            raise Missing(f'couldn\'t find key {reference.get("key")} in '
                          f'{kind.kind} {self._pod()["metadata"]["namespace"]}'
                          f'/{reference.get("name")}')
        return data[reference['key']].decode(errors='replace')

    def field(self, path):
        """Return a field of the pod.

        :param path: ``fieldPath`` of a ``fieldRef``.
        :raises Missing: the field is not supported or does not exist.
        """
        pod = self._pod()
        meta, spec = pod['metadata'], pod['spec']
        status = pod.get('status') or {}
        match = _KEYED.fullmatch(path)
        if match:
            return (meta.get(match[1]) or {}).get(match[2], '')
        if path in ('metadata.labels', 'metadata.annotations'):
            return '\n'.join(f'{k}="{v}"' for k, v in sorted((
                meta.get(path.partition('.')[2]) or {}).items()))
        try:
            return {
                'metadata.name': meta['name'],
                'metadata.namespace': meta['namespace'],
                'metadata.uid': meta['uid'],
                'spec.nodeName': spec.get('nodeName', ''),
                'spec.serviceAccountName': spec.get('serviceAccountName', ''),
                'status.podIP': status.get('podIP', ''),
                'status.podIPs': status.get('podIP', ''),
                'status.hostIP': status.get('hostIP', ''),
                'status.hostIPs': status.get('hostIP', '')}[path]
        except KeyError:
            raise Missing(f'unsupported fieldPath: {path}') from None

    def resource(self, reference, container):
        """Return a resource limit or request, rounded up to the divisor.

        :param reference: a ``resourceFieldRef``.
        :param container: the spec of the container.
        """
        where, _, name = reference.get('resource', '').partition('.')
        found = ((container.get('resources') or {}).get(where) or {}).get(
            name)
        if found is None:
            return '0'
        divisor = quantity.value(reference.get('divisor') or '1') or 1
        return str(math.ceil(quantity.value(found) / divisor))
