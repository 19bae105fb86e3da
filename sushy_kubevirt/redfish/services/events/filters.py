# SPDX-License-Identifier: Apache-2.0
"""Which events somebody wants.

A `Filter` is what a subscription says in its properties (EventDestination),
an `Expression` what the query parameter ``$filter`` of the stream says
(DSP0266, "Server-sent events").
"""

import dataclasses
import re

from sushy_kubevirt.redfish.services.events import event_record


@dataclasses.dataclass(frozen=True)
class Filter:
    """The filtering properties of a subscription; () for any.

    :param registries: RegistryPrefixes
    :param messages: MessageIds, with or without a registry's version
    :param no_registries: ExcludeRegistryPrefixes
    :param no_messages: ExcludeMessageIds
    :param resource_types: ResourceTypes
    :param origins: paths, of OriginResources
    :param subordinate: SubordinateResources
    :param types: EventTypes, deprecated
    :param severities: Severities
    """

    registries: tuple = ()
    messages: tuple = ()
    no_registries: tuple = ()
    no_messages: tuple = ()
    resource_types: tuple = ()
    origins: tuple = ()
    subordinate: bool = False
    types: tuple = ()
    severities: tuple = ()

    def matches(self, record):
        """Whether a record is wanted.

        :param record: a `event_record.Record`
        """
        if (self.registries or self.messages) and not (
                record.prefix in self.registries
                or is_message(record, self.messages)):
            return False
        if (record.prefix in self.no_registries
                or is_message(record, self.no_messages)):
            return False
        if self.resource_types and (record.resource_type
                                    not in self.resource_types):
            return False
        if self.origins and not any(
                is_origin(record, origin, self.subordinate)
                for origin in self.origins):
            return False
        if self.severities and record.severity not in self.severities:
            return False
        return is_type(record, self.types)


def is_message(record, ids):
    """Whether a record's message is one of these.

    :param ids: ``Registry.Key``; a version in between is ignored
    """
    return any(one.partition('.')[0] == record.prefix
               and one.rpartition('.')[2] == record.key for one in ids)


def is_origin(record, path, subordinate):
    """Whether a record is about a resource, or one below it."""
    path = path.rstrip('/')
    return record.origin == path or subordinate and (
        record.origin.startswith(path + '/'))


def is_type(record, types):
    """Whether a record is of one of these (deprecated) EventTypes."""
    return (not types or record.type in types or event_record.ALERT in types
            or event_record.OTHER in types)


class BadFilter(Exception):
    """A ``$filter`` that cannot be read."""


#: Properties that a ``$filter`` may name (SSEFilterPropertiesSupported).
PROPERTIES = ('EventFormatType', 'EventType', 'MessageId', 'OriginResource',
              'RegistryPrefix', 'ResourceType', 'SubordinateResources')

_LONGEST = 4096
_MOST_TERMS = 64
_DEEPEST = 16

_TOKEN = re.compile(r"\s*(?:([()])|'((?:[^']|'')*)'|([^\s()']+))")


class Expression:
    """A ``$filter``: ``Property eq value`` with and, or, not, parentheses.

    :param text: of the query parameter; '' for all
    :raises: `BadFilter`
    """

    def __init__(self, text):
        self.text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._terms = 0
        self._subordinate = False
        self._test = None
        if self._tokens:
            self._test = self._either(0)
            if self._at < len(self._tokens):
                raise BadFilter('%s is not expected there'
                                % self._tokens[self._at][0])

    def matches(self, record):
        """Whether a record is wanted."""
        return self._test is None or self._test(record)

    def _word(self):
        """The next token, as a word; '' at the end or for a quoted text."""
        if self._at < len(self._tokens):
            text, quoted = self._tokens[self._at]
            return '' if quoted else text
        return ''

    def _either(self, depth):
        parts = [self._both(depth)]
        while self._word().lower() == 'or':
            self._at += 1
            parts.append(self._both(depth))
        if len(parts) == 1:
            return parts[0]
        return lambda record: any(part(record) for part in parts)

    def _both(self, depth):
        parts = [self._one(depth)]
        while self._word().lower() == 'and':
            self._at += 1
            parts.append(self._one(depth))
        if len(parts) == 1:
            return parts[0]
        return lambda record: all(part(record) for part in parts)

    def _one(self, depth):
        if depth > _DEEPEST:
            raise BadFilter('it is nested too deeply')
        word = self._word()
        if word == '(':
            self._at += 1
            inner = self._either(depth + 1)
            if self._word() != ')':
                raise BadFilter('a closing parenthesis is missing')
            self._at += 1
            return inner
        if word.lower() == 'not':
            self._at += 1
            inner = self._one(depth + 1)
            return lambda record: not inner(record)
        return self._comparison()

    def _comparison(self):
        self._terms += 1
        if self._terms > _MOST_TERMS:
            raise BadFilter('it has too many terms')
        name, operator, value = (self._next() for _ in range(3))
        if name not in PROPERTIES:
            raise BadFilter('%s cannot be filtered by; %s can' % (
                name[:40] or 'nothing', ', '.join(PROPERTIES)))
        if operator.lower() not in ('eq', 'ne'):
            raise BadFilter('there are the operators eq and ne, not %s'
                            % operator[:40])
        test = self._about(name, value)
        if operator.lower() == 'ne':
            return lambda record: not test(record)
        return test

    def _next(self):
        if self._at >= len(self._tokens):
            raise BadFilter('it ends too early')
        text, _ = self._tokens[self._at]
        self._at += 1
        return text

    def _about(self, name, value):
        if name == 'EventFormatType':
            if value not in ('Event', 'MetricReport'):
                raise BadFilter(f'EventFormatType cannot be {value[:40]}')
            return lambda record: value == 'Event'
        if name == 'EventType':
            return lambda record: is_type(record, (value,))
        if name == 'MessageId':
            return lambda record: is_message(record, (value,))
        if name == 'RegistryPrefix':
            return lambda record: record.prefix == value
        if name == 'ResourceType':
            return lambda record: record.resource_type == value
        if name == 'SubordinateResources':
            if value not in ('true', 'false'):
                raise BadFilter('SubordinateResources is true or false')
            self._subordinate = self._subordinate or value == 'true'
            return lambda record: True
        return lambda record: is_origin(record, value, self._subordinate)


def _tokens(text):
    """:returns: list of (text, whether it was quoted)"""
    if len(text) > _LONGEST:
        raise BadFilter('it is longer than %d characters' % _LONGEST)
    found, position, text = [], 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadFilter('a quotation mark is missing')
        bracket, quoted, word = match.groups()
        if quoted is not None:
            found.append((quoted.replace("''", "'"), True))
        else:
            found.append((bracket or word, False))
        position = match.end()
    return found
