# SPDX-License-Identifier: Apache-2.0
"""Columns and selectable fields of events, as in core/v1."""

from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import tables

FIELDS = tuple(f'involvedObject.{name}' for name in (
    'kind', 'namespace', 'name', 'uid', 'apiVersion', 'resourceVersion',
    'fieldPath')) + ('reason', 'reportingComponent', 'source', 'type')


def _last_seen(obj):
    times = (obj.get('lastTimestamp'), obj.get('series', {}).get(
        'lastObservedTime'), obj.get('eventTime'), obj.get('firstTimestamp'))
    return tables.age(next((t for t in times if t), None))


def _object(obj):
    about = obj.get('involvedObject', {})
    return f'{about.get("kind", "").lower()}/{about.get("name", "")}'


COLUMNS = (
    kinds.Column('Last Seen', value=_last_seen),
    kinds.Column('Type', jsonPath='.type'),
    kinds.Column('Reason', jsonPath='.reason'),
    kinds.Column('Object', value=_object),
    kinds.Column('Source', jsonPath='.source.component', priority=1),
    kinds.Column('Message', value=lambda obj: str(
        obj.get('message', '')).strip()),
    kinds.Column('Count', 'integer', jsonPath='.count', priority=1),
    kinds.Column('Name', format='name', jsonPath='.metadata.name',
                 priority=1))
