# SPDX-License-Identifier: Apache-2.0
"""CEL validation rules in schemas of CustomResourceDefinitions.

``x-kubernetes-validations``, as in
``apiextensions-apiserver/pkg/apiserver/schema/cel`` (1.36), evaluated for
objects that the schema allows. Not supported are cost limits, type checking (a
rule that compares a string with a number fails when it is evaluated, not when
it is created), ``messageExpression``, ``fieldPath``, ``optionalOldSelf``, most
of Kubernetes' CEL libraries, and old values within lists. A rule without
``oldSelf`` is not applied to a value that an update leaves as it is
(ratcheting).
"""
import functools
from importlib import machinery
from importlib import util
import re
import sys
from typing import NamedTuple

from kubevirt_sandbox.api import cel_reads
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import quantity

RULES = 'x-kubernetes-validations'

# apiserver/pkg/cel/escaping.go
_RESERVED = frozenset((
    'true', 'false', 'null', 'in', 'as', 'break', 'const', 'continue',
    'else', 'for', 'function', 'if', 'import', 'let', 'loop', 'package',
    'namespace', 'return', 'var', 'void', 'while'))
_ESCAPES = {'__': '__underscores__', '.': '__dot__', '-': '__dash__',
            '/': '__slash__'}

# Of cel-go's strings, and Kubernetes' lists and quantities.
_FUNCTIONS = {
    'split': lambda text, separator: text.split(separator),
    'sum': sum,
    'quantity': lambda text: float(quantity.value(text)),
    'asInteger': int,
    'compareTo': lambda one, other: (one > other) - (one < other)}


def problems(schema):
    """List rules that are not valid CEL, as :class:`errors.Cause`."""
    return list(_problems(schema, ''))


def _problems(schema, path):
    for at, rule in enumerate(schema.get(RULES) or ()):
        try:
            compiled(rule['rule'])
        except ValueError as exc:
            yield errors.Cause(
                'FieldValueInvalid', f'Invalid value: "{rule["rule"]}": '
                f'compilation failed: {exc}', f'{path}{RULES}[{at}].rule')
    for name, below in (schema.get('properties') or {}).items():
        yield from _problems(below, f'{path}properties[{name}].')
    for name in ('items', 'additionalProperties'):
        if isinstance(schema.get(name), dict):
            yield from _problems(schema[name], f'{path}{name}.')


def checker(kind):
    """Make the hook that checks a kind's objects by its schema's rules.

    :returns: a ``validate`` hook (see :class:`kinds.Kind`), or None for a
        schema without rules.
    """
    rules = _rules(kind.schema or {})
    if rules is None:
        return None

    def validate(admission):
        if admission.operation == 'DELETE':
            return
        found = list(_check(rules, _visible(admission.new),
                            _visible(admission.old), ''))
        if found:
            raise errors.invalid(
                kind, admission.new['metadata'].get('name'), found)
    return validate


def _visible(obj):
    """Return an object with the metadata that rules may name."""
    return obj and {**obj, 'metadata': {
        name: value for name, value in obj['metadata'].items()
        if name in ('name', 'generateName')}}


def causes(schema, new, old=None):
    """List violated rules, as :class:`errors.Cause`.

    :param old: the object as it was, None for one that is created.
    """
    rules = _rules(schema)
    return [] if rules is None else list(_check(rules, new, old, ''))


class _Rules(NamedTuple):
    """A schema with rules, or with rules below it.

    :param named: ``{name: _Rules or None}`` of ``properties``.
    :param others: those of ``additionalProperties``.
    :param items: those of ``items``.
    """

    schema: dict
    named: dict
    others: '_Rules | None'
    items: '_Rules | None'


def _rules(schema):
    """Return the :class:`_Rules` of a schema, None if there are none."""
    named = {name: _rules(below) for name, below in (
        schema.get('properties') or {}).items()}
    others, items = (
        _rules(schema[name]) if isinstance(schema.get(name), dict) else None
        for name in ('additionalProperties', 'items'))
    if schema.get(RULES) or any((others, items, *named.values())):
        return _Rules(schema, named, others, items)
    return None


def _check(rules, new, old, path):
    if new is None:
        return
    schema = rules.schema
    values = {'self': new, 'oldSelf': old}
    for rule in schema.get(RULES) or ():
        text = rule['rule']
        reads = cel_reads.reads(text)
        if (old is None if 'oldSelf' in reads else old == new):
            continue
        said = rule.get('message', '').strip()
        try:
            if compiled(text).execute({**_FUNCTIONS, **{
                    name: _read(schema, values[name], paths)
                    for name, paths in reads.items()
                    if name in values}}) is True:
                continue
            said = said or f'failed rule: {text.strip()}'
        except (RuntimeError, TypeError, ValueError, KeyError) as exc:
            said = f'{exc} evaluating rule: {said or text.strip()}'
        yield errors.Cause(
            rule.get('reason', 'FieldValueInvalid'),
            f'Invalid value: "{schema.get("type", "")}": {said}',
            path or '<nil>')
    prefix = path + '.' if path else ''
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for name, value in new.items():
            below = rules.named.get(name, rules.others)
            if below is not None:
                yield from _check(below, value, before.get(name),
                                  prefix + name)
    elif isinstance(new, list) and new != old and rules.items is not None:
        for at, value in enumerate(new):
            yield from _check(rules.items, value, None, f'{path}[{at}]')


def _read(schema, value, paths):
    """Convert what paths read of a value."""
    if cel_reads.WHOLE not in paths and isinstance(value, dict):
        names = {path[0] for path in paths}
        value = {name: below for name, below in value.items()
                 if name in names or _escaped(name) in names}
    return cel_reads.part(_value(schema, value), paths)


def _value(schema, value):
    """Convert a value: fields get the names that CEL has for them."""
    if isinstance(value, list):
        items = schema.get('items')
        return [_value(items if isinstance(items, dict) else {}, one)
                for one in value]
    if not isinstance(value, dict):
        return value
    named = schema.get('properties') or {}
    others = schema.get('additionalProperties')
    others = others if isinstance(others, dict) else {}
    return {_escaped(name) if name in named else name:
            _value(named.get(name, others), one)
            for name, one in value.items()}


@functools.lru_cache(1000)
def _escaped(name):
    if name in _RESERVED:
        return f'__{name}__'
    return re.sub(r'__|[-./]', lambda found: _ESCAPES[found[0]], name)


@functools.lru_cache(1000)
def compiled(text):
    """Compile an expression.

    :raises ValueError: the expression is not valid CEL.
    """
    return library().compile(text)


def library():
    """Return the module of compiled code of the package ``cel``.

    ``import cel`` would import the package's command line as well, with a
    terminal's user interface: 0.2 s of processor time.
    """
    name = 'cel.cel'
    if name not in sys.modules:
        package = util.find_spec('cel')
        spec = machinery.PathFinder.find_spec(
            name, package.submodule_search_locations)
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]
