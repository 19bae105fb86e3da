# SPDX-License-Identifier: Apache-2.0
"""OData ``$metadata`` and the collection JsonSchemas (JsonSchemaFile v1.1).

All schemas are DMTF's. Both documents refer to the copies that DMTF publishes.
"""

from __future__ import annotations

import html
import typing

import flask

from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.protocol import schemas
from sushy_kubevirt.redfish.resources import resource_paths

if typing.TYPE_CHECKING:
    from collections import abc

ROOT = '/redfish/v1/JsonSchemas'

_XML = 'application/xml'

_DOCUMENT = '''<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">
%s  <edmx:DataServices>
    <Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">
      <EntityContainer Name="Service" Extends="%s.ServiceContainer"/>
    </Schema>
  </edmx:DataServices>
</edmx:Edmx>
'''  # noqa: E501

_REFERENCE = '''  <edmx:Reference Uri=%s>
%s  </edmx:Reference>
'''


def _used_schemas() -> list[tuple[str, str | None]]:
    return schemas.used_schemas(routing.current().modules)


def metadata() -> flask.Response:
    """GET /redfish/v1/$metadata

    CSDL (XML) that references the schemas in use, with their versions.
    """
    namespaces = {name: {name} for name, _version in schemas.ALWAYS_USED}
    for name, version in _used_schemas():
        names = namespaces.setdefault(name, {name})
        if version:
            names.add(f'{name}.{version}')
    references = [_reference('RedfishExtensions',
                             ['RedfishExtensions.v1_0_0'], 'Redfish')]
    references += [_reference(name, sorted(names))
                   for name, names in sorted(namespaces.items())]
    root = max(namespaces['ServiceRoot'])
    return flask.Response(_DOCUMENT % (''.join(references), root),
                          content_type=_XML)


def _reference(name: str, namespaces: abc.Iterable[str],
               alias: str | None = None) -> str:
    alias_attribute = f' Alias={_quote(alias)}' if alias else ''
    includes = ''.join(
        f'    <edmx:Include Namespace={_quote(namespace)}{alias_attribute}/>\n'
        for namespace in namespaces)
    return _REFERENCE % (_quote(schemas.csdl_uri(name)), includes)


def _quote(text: str) -> str:
    # xml.sax.saxutils would import a parser and much of urllib.
    return f'"{html.escape(text)}"'


def _schema_files() -> dict[str, str]:
    """List the JSON schemas in use.

    :returns: Id, such as ``Chassis.v1_25_0``, to ``@odata.type``
    """
    files = {}
    for name, version in _used_schemas():
        prefix = f'{name}.{version}' if version else name
        files[prefix] = f'#{prefix}.{name}'
    return files


def collection() -> responses.Json:
    """GET /redfish/v1/JsonSchemas"""
    return responses.collection('JsonSchemaFile', 'JSON Schemas', ROOT,
                                _schema_files())


def resource(schema: str) -> responses.Json:
    """GET /redfish/v1/JsonSchemas/<schema>

    :param schema: Id, see `_schema_files`
    """
    kind = resource_paths.member('JsonSchemaFile', schema, _schema_files())
    return {
        '@odata.id': f'{ROOT}/{schema}',
        '@odata.type': '#JsonSchemaFile.v1_1_5.JsonSchemaFile',
        'Id': schema,
        'Name': f'{schema} JSON Schema',
        'Languages': ['en'],
        'Schema': kind,
        'Location': [{'Language': 'en',
                      'PublicationUri': schemas.json_uri(kind)}],
    }


ROOT_LINKS = {'JsonSchemas': ROOT}

ROUTES = (
    routing.add('/redfish/v1/$metadata', metadata, feature='minimum',
                media=_XML),
    routing.add(ROOT, collection, feature='minimum'),
    routing.add(ROOT + '/<schema>', resource, feature='minimum'),
)
