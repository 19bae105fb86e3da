# SPDX-License-Identifier: Apache-2.0
"""Tables of ``kubectl get``, made by the server (meta.k8s.io/v1 Table)."""
import datetime

from kubevirt_sandbox.api import jsonpath

NAME_TEXT = ('Name must be unique within a namespace. Is required when '
             'creating resources.')
AGE_TEXT = 'CreationTimestamp is a timestamp of the creation of the object.'


def age(timestamp):
    """Format a time as the age ``kubectl`` shows, e.g. ``5m3s``."""
    try:
        then = datetime.datetime.fromisoformat(timestamp)
        seconds = int((datetime.datetime.now(datetime.UTC)
                       - then).total_seconds())
    except (TypeError, ValueError):
        return '<unknown>' if not timestamp else '<invalid>'
    # apimachinery/pkg/util/duration, HumanDuration
    if seconds < -1:
        return '<invalid>'
    seconds = max(seconds, 0)
    minutes, hours = seconds // 60, seconds // 3600
    days = hours // 24
    if seconds < 120:
        return f'{seconds}s'
    if minutes < 10:
        return f'{minutes}m{seconds % 60}s' if seconds % 60 else f'{minutes}m'
    if minutes < 180:
        return f'{minutes}m'
    if hours < 8:
        return f'{hours}h{minutes % 60}m' if minutes % 60 else f'{hours}h'
    if hours < 48:
        return f'{hours}h'
    if hours < 24 * 8:
        return f'{days}d{hours % 24}h' if hours % 24 else f'{days}d'
    if days < 730:
        return f'{days}d'
    return f'{days // 365}y'


def _names_itself(kind):
    """Tell whether a kind defines a column Name."""
    return any(column.name == 'Name' for column in kind.columns)


def _columns(kind):
    found = []
    if not _names_itself(kind):
        found.append({'name': 'Name', 'type': 'string', 'format': 'name',
                      'description': NAME_TEXT, 'priority': 0})
    for column in kind.columns:
        found.append({'name': column.name, 'type': column.type,
                      'format': column.format,
                      'description': column.description,
                      'priority': column.priority})
    if not kind.columns:
        found.append({'name': 'Age', 'type': 'date', 'format': '',
                      'description': AGE_TEXT, 'priority': 0})
    return found


def _cell(column, obj):
    if column.value:
        return column.value(obj)
    values = jsonpath.find(column.jsonPath, obj)
    if not values:
        return None
    value = values[0]
    if column.type == 'date':
        return age(value)
    if column.type == 'string':
        if isinstance(value, bool):
            return 'true' if value else 'false'
        if isinstance(value, (dict, list)) or len(values) > 1:
            return jsonpath.text(values)
        return str(value)
    if column.type == 'integer':
        return value if isinstance(value, int) else None
    return value


def cells(kind, obj):
    """Return the cells of an object's row."""
    found = []
    if not _names_itself(kind):
        found.append(obj['metadata'].get('name'))
    found += [_cell(column, obj) for column in kind.columns]
    if not kind.columns:
        found.append(age(obj['metadata'].get('creationTimestamp')))
    return found


def head(kind, meta, defined=True):
    """Return a Table without its rows.

    :param meta: its metadata.
    :param defined: with column definitions; a watch sends them once.
    """
    return {'kind': 'Table', 'apiVersion': 'meta.k8s.io/v1',
            'metadata': meta,
            'columnDefinitions': _columns(kind) if defined else None}
