# SPDX-License-Identifier: Apache-2.0
"""Objects, lists and events in the form that a client accepts, as bytes."""
from sushy_kubevirt.sandbox.api import history
from sushy_kubevirt.sandbox.api import tables

META = 'meta.k8s.io/v1'


def _partial(obj):
    return {'kind': 'PartialObjectMetadata', 'apiVersion': META,
            'metadata': obj['metadata']}


class View:
    """How objects of a kind are sent to one client.

    :param kind: the Kind that was asked for.
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
        """An object, in this form."""
        if self.kind.from_stored and obj.get(
                'apiVersion') != self.kind.api_version:
            obj = self.kind.from_stored(obj)
        return obj

    def raw(self, record):
        """A record as JSON."""
        if self.partial:
            return record.view('partial', lambda r: history.encode(
                _partial(r.obj)))
        if self.kind.from_stored:
            return record.view(
                self.kind.api_version,
                lambda r: history.encode(self.kind.from_stored(r.obj)))
        return record.raw

    def one(self, obj):
        """An object as the answer to GET and the writes, bytes."""
        obj = self.obj(obj)
        if self.table:
            return history.encode(tables.table(
                self.kind, [obj], obj['metadata'].get('resourceVersion', ''),
                self.include))
        if self.partial:
            obj = _partial(obj)
        return history.encode(obj)

    def list(self, records, meta):
        """A list as the answer, bytes.

        :param meta: ``metadata`` of the list.
        """
        if self.table:
            table = tables.table(self.kind, [self.obj(r.obj)
                                             for r in records],
                                 '', self.include)
            table['metadata'] = meta
            return history.encode(table)
        if self.partial:
            head = {'kind': 'PartialObjectMetadataList', 'apiVersion': META}
        else:
            head = {'kind': self.kind.list_kind,
                    'apiVersion': self.kind.api_version}
        head['metadata'] = meta
        return b''.join((history.encode(head)[:-1], b',"items":[',
                         b','.join([self.raw(r) for r in records]), b']}'))

    def event(self, type_, record, event=None):
        """One line of a watch, bytes.

        :param event: the :class:`history.Event`, where the line is the
            same for all clients and is made only once.
        """
        if self.table:
            obj = self.obj(record.obj)
            table = tables.table(self.kind, [obj], obj['metadata'][
                'resourceVersion'], self.include, not self._headed)
            self._headed = True
            return line(type_, history.encode(table))
        if event is None or event.record is not record:
            return line(type_, self.raw(record))
        return event.sent((type_, self.partial, self.kind.api_version),
                          lambda: line(type_, self.raw(record)))

    def bookmark(self, version, annotations=None):
        """A BOOKMARK line."""
        if self.table:
            obj = tables.table(self.kind, [], str(version), 'None', False)
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
    """A line of a watch."""
    return b'{"type":"' + type_.encode() + b'","object":' + raw + b'}\n'
