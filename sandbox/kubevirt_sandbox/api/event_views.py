# SPDX-License-Identifier: Apache-2.0
"""Converts events between core/v1 and events.k8s.io/v1.

The fields' names follow ``k8s.io/api/events/v1``.
"""
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import jsonpath
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import tables

FIELDS = tuple(f'involvedObject.{name}' for name in (
    'kind', 'namespace', 'name', 'uid', 'apiVersion', 'resourceVersion',
    'fieldPath')) + ('reason', 'reportingComponent', 'source', 'type')

#: core name: events.k8s.io name
_NAMES = {'message': 'note', 'involvedObject': 'regarding',
          'source': 'deprecatedSource', 'count': 'deprecatedCount',
          'firstTimestamp': 'deprecatedFirstTimestamp',
          'lastTimestamp': 'deprecatedLastTimestamp',
          'reportingComponent': 'reportingController'}


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


def to_core(obj):
    """Convert an event to its core/v1 form."""
    back = {new: old for old, new in _NAMES.items()}
    return {**{back.get(k, k): json_copy.copy(v) for k, v in obj.items()},
            'apiVersion': 'v1'}


def from_core(obj):
    """Convert an event to its events.k8s.io/v1 form."""
    return {**{_NAMES.get(k, k): v for k, v in obj.items()},
            'apiVersion': 'events.k8s.io/v1'}


def new_kind(core):
    """Make the Kind of events.k8s.io/v1, stored as ``core``."""
    kind = kinds.Kind(
        'events.k8s.io', 'v1', 'Event', 'events', 'event', ('ev',),
        columns=tuple(
            kinds.Column(c.name, c.type, c.jsonPath, c.priority, c.format,
                         value=_through(c)) for c in core.columns),
        generation=False, unconditional_update=True, stored_as=core,
        selectable_fields=('reason', 'type'))
    kind.to_stored, kind.from_stored = to_core, from_core
    return kind


def _through(column):
    if column.value is None:
        return lambda obj: next(
            iter(jsonpath.find(column.jsonPath, to_core(obj))), None)
    return lambda obj: column.value(to_core(obj))
