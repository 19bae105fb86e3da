# SPDX-License-Identifier: Apache-2.0
"""Objects, lists and events in the form that a client accepts, as bytes."""
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import tables

META = 'meta.k8s.io/v1'


def _partial(obj):
    return {'kind': 'PartialObjectMetadata', 'apiVersion': META,
            'metadata': obj['metadata']}


def _encode_partial(record):
    return history.encode(_partial(record.obj))


class View:
    """The representation of a kind's objects for one client.

    :param kind: the requested Kind.
    :param form: the :class:`negotiation.Form`.
    :param include: ``includeObject`` of tables: None, Metadata or Object.
    """

    def __init__(self, kind, form, include='Metadata'):
        self.kind = kind
        self.include = include or 'Metadata'
        self.table = form.view == 'Table'
        self.partial = form.view.startswith('PartialObjectMetadata')
        self._headed = False

    def obj(self, obj):
        """Return an object in this form."""
        if self.kind.from_stored and obj.get(
                'apiVersion') != self.kind.api_version:
            obj = self.kind.from_stored(obj)
        return obj

    def raw(self, record):
        """Return a record as JSON."""
        if self.partial:
            return record.view('partial', _encode_partial)
        if self.kind.from_stored and (
                record.obj['apiVersion'] != self.kind.api_version):
            return record.view(
                self.kind.api_version,
                lambda r: history.encode(self.kind.from_stored(r.obj)))
        return record.raw

    def _row(self, record):
        """Return a record as a row of a table, bytes.

        Cells have ages in them, which change; the rest is made once.
        """
        obj = self.obj(record.obj)
        cells = history.encode(tables.cells(self.kind, obj))
        if self.include == 'Object':
            shown = self.raw(record)
        elif self.include == 'Metadata':
            shown = record.view('partial', _encode_partial)
        else:
            return b'{"cells":' + cells + b'}'
        return b'{"cells":' + cells + b',"object":' + shown + b'}'

    def _table(self, records, meta, defined=True):
        head = history.encode(tables.head(self.kind, meta, defined))
        return b''.join((head[:-1], b',"rows":[',
                         b','.join([self._row(r) for r in records]), b']}'))

    def one(self, obj, record=None):
        """Return the response to GET and to writes, bytes.

        :param record: the present :class:`history.Record` of the object, if
            there is one: its JSON is made once.
        """
        if record is not None and not self.table and (
                record.obj['metadata'] is obj['metadata']):
            return self.raw(record)
        obj = self.obj(obj)
        if self.table:
            version = obj['metadata'].get('resourceVersion', '')
            return self._table([history.Record(None, obj, version)],
                               {'resourceVersion': version})
        if self.partial:
            obj = _partial(obj)
        return history.encode(obj)

    def list(self, records, meta):
        """Return the response to LIST, bytes.

        :param meta: ``metadata`` of the list.
        """
        if self.table:
            return self._table(records, meta)
        if self.partial:
            head = {'kind': 'PartialObjectMetadataList', 'apiVersion': META}
        else:
            head = {'kind': self.kind.list_kind,
                    'apiVersion': self.kind.api_version}
        head['metadata'] = meta
        return b''.join((history.encode(head)[:-1], b',"items":[',
                         b','.join([self.raw(r) for r in records]), b']}'))

    def event(self, type_, record, event=None):
        """Return one line of a watch, bytes.

        :param event: the :class:`history.Event`, where the line is the
            same for all clients and is made only once.
        """
        if self.table:
            table = self._table([record], {'resourceVersion': str(
                record.version)}, not self._headed)
            self._headed = True
            return line(type_, table)
        if event is None or event.record is not record:
            return line(type_, self.raw(record))
        return event.sent((type_, self.partial, self.kind.api_version),
                          lambda: line(type_, self.raw(record)))

    def bookmark(self, version, annotations=None):
        """Return a BOOKMARK line."""
        if self.table:
            obj = {**tables.head(self.kind, {
                'resourceVersion': str(version)}, False), 'rows': []}
        else:
            obj = {'kind': self.kind.kind,
                   'apiVersion': self.kind.api_version,
                   'metadata': {'resourceVersion': str(version),
                                'creationTimestamp': None}}
            if self.partial:
                obj.update(kind='PartialObjectMetadata', apiVersion=META)
        if annotations:
            obj['metadata']['annotations'] = annotations
        return line('BOOKMARK', history.encode(obj))


def line(type_, raw):
    """Return a line of a watch."""
    return b'{"type":"' + type_.encode() + b'","object":' + raw + b'}\n'
