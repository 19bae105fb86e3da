# SPDX-License-Identifier: Apache-2.0
"""Filters for events.

A `Filter` represents the filtering properties of a subscription
(EventDestination), an `Expression` the query parameter ``$filter`` of an
event stream (DSP0266, "Server-sent events").
"""

from __future__ import annotations

from collections import abc
import re
import typing

from sushy_kubevirt.redfish.services.events import event_record

_Test: typing.TypeAlias = abc.Callable[[event_record.Record], bool]


class Filter(typing.NamedTuple):
    """The filtering properties of a subscription.

    An empty tuple does not restrict the events.

    :param registries: RegistryPrefixes
    :param messages: MessageIds, with or without a registry's version
    :param no_registries: ExcludeRegistryPrefixes
    :param no_messages: ExcludeMessageIds
    :param resource_types: ResourceTypes
    :param origins: paths of OriginResources
    :param subordinate: SubordinateResources
    :param types: EventTypes (deprecated in Redfish)
    :param severities: Severities
    """

    registries: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    no_registries: tuple[str, ...] = ()
    no_messages: tuple[str, ...] = ()
    resource_types: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    subordinate: bool = False
    types: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()

    def matches(self, record: event_record.Record) -> bool:
        """Check whether the filter selects an event."""
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


def is_message(record: event_record.Record, ids: abc.Iterable[str]) -> bool:
    """Check whether a record's message is in a list.

    :param ids: MessageIds, ``Registry.Key``; a version in between is ignored
    """
    return any(id_.partition('.')[0] == record.prefix
               and id_.rpartition('.')[2] == record.key for id_ in ids)


def is_origin(record: event_record.Record, path: str, subordinate: bool
              ) -> bool:
    """Check whether a record is about a resource.

    :param path: of the resource; a system may be named by its UUID
    :param subordinate: whether resources below it are included
    """
    path = path.rstrip('/')
    return any(origin == path or subordinate and origin.startswith(path + '/')
               for origin in (record.origin, record.alias))


def is_type(record: event_record.Record, types: abc.Collection[str]) -> bool:
    """Check whether a record has one of the (deprecated) EventTypes.

    Alert and Other select all records, see `event_record`.
    """
    return (not types or record.type in types or event_record.ALERT in types
            or event_record.OTHER in types)


class BadFilter(Exception):
    """A ``$filter`` is invalid; the text says why, without a subject."""


#: Properties allowed in a ``$filter`` (SSEFilterPropertiesSupported).
PROPERTIES = ('EventFormatType', 'EventType', 'MessageId', 'OriginResource',
              'RegistryPrefix', 'ResourceType', 'SubordinateResources')

_MAX_LENGTH = 4096
_MAX_TERMS = 64
_MAX_DEPTH = 16

_TOKEN = r"\s*(?:([()])|'((?:[^']|'')*)'|([^\s()']+))"


class Expression:
    """A parsed ``$filter``.

    Grammar: ``Property eq value``, ``ne``, ``and``, ``or``, ``not`` and
    parentheses.

    :param text: value of the query parameter; '' selects all events
    :raises: `BadFilter`
    """

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._position = 0
        self._terms = 0
        self._subordinate = False
        self._test: _Test | None = None
        if self._tokens:
            self._test = self._parse_or(0)
            if self._position < len(self._tokens):
                raise BadFilter(f'{self._tokens[self._position][0]} is not '
                                'expected there')

    def matches(self, record: event_record.Record) -> bool:
        """Check whether the expression selects an event."""
        return self._test is None or self._test(record)

    def _word(self) -> str:
        """Return the next token; '' at the end, or if it is quoted."""
        if self._position < len(self._tokens):
            text, quoted = self._tokens[self._position]
            return '' if quoted else text
        return ''

    def _parse_or(self, depth: int) -> _Test:
        return self._parse_joined('or', any, lambda: self._parse_joined(
            'and', all, lambda: self._parse_unary(depth)))

    def _parse_joined(self, word: str,
                      combine: abc.Callable[[abc.Iterable[bool]], bool],
                      parse: abc.Callable[[], _Test]) -> _Test:
        """Parse what a word joins; without the word it is one part."""
        parts = [parse()]
        while self._word().lower() == word:
            self._position += 1
            parts.append(parse())
        return lambda record: combine(part(record) for part in parts)

    def _parse_unary(self, depth: int) -> _Test:
        if depth > _MAX_DEPTH:
            raise BadFilter('it is nested too deeply')
        word = self._word()
        if word == '(':
            self._position += 1
            inner = self._parse_or(depth + 1)
            if self._word() != ')':
                raise BadFilter('a closing parenthesis is missing')
            self._position += 1
            return inner
        if word.lower() == 'not':
            self._position += 1
            inner = self._parse_unary(depth + 1)
            return lambda record: not inner(record)
        return self._parse_comparison()

    def _parse_comparison(self) -> _Test:
        self._terms += 1
        if self._terms > _MAX_TERMS:
            raise BadFilter('it has too many terms')
        name, operator, value = (self._next() for _ in range(3))
        if name not in PROPERTIES:
            raise BadFilter(
                f"{name[:40] or 'an empty name'} is not supported; supported "
                f"properties: {', '.join(PROPERTIES)}")
        if operator.lower() not in ('eq', 'ne'):
            raise BadFilter(f'operator {operator[:40]} is not supported; '
                            'supported operators: eq, ne')
        test = self._predicate(name, value)
        if operator.lower() == 'ne':
            return lambda record: not test(record)
        return test

    def _next(self) -> str:
        if self._position >= len(self._tokens):
            raise BadFilter('it ends too early')
        text, _ = self._tokens[self._position]
        self._position += 1
        return text

    def _predicate(self, name: str, value: str) -> _Test:
        """Return a function that tells whether a property has a value."""
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


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Return (text, whether it was quoted) of each token."""
    if len(text) > _MAX_LENGTH:
        raise BadFilter(f'it is longer than {_MAX_LENGTH} characters')
    tokens: list[tuple[str, bool]] = []
    pattern = re.compile(_TOKEN)
    position, text = 0, text.strip()
    while position < len(text):
        match = pattern.match(text, position)
        if match is None:
            raise BadFilter('a quotation mark is missing')
        bracket, quoted, word = match.groups()
        if quoted is not None:
            tokens.append((quoted.replace("''", "'"), True))
        else:
            tokens.append((bracket or word, False))
        position = match.end()
    return tokens
