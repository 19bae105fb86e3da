# SPDX-License-Identifier: Apache-2.0
"""The ``authorizer`` variable of CEL expressions.

Follows ``apiserver/pkg/cel/library/authz.go`` (1.36): ``path``, ``group``,
``resource``, ``subresource``, ``namespace``, ``name``, ``check``,
``requestResource``, and ``allowed``, ``reason``, ``errored`` and ``error`` of
a decision. ``serviceAccount``, ``fieldSelector`` and ``labelSelector`` are not
supported. CEL's values here are dicts, and its methods are functions whose
first argument is the dict.
"""
from kubevirt_sandbox.api import attributes

#: Name of the variable.
NAME = 'authorizer'


def variable(resource=None):
    """Return the variable's value.

    :param resource: dict with ``group``, ``resource``, ``subresource``,
        ``namespace`` and ``name`` of the request, for ``requestResource``.
    """
    return {'requestResource': resource or {}}


def functions(decide):
    """Return the methods of the variable's value.

    :param decide: function of :class:`attributes.Attributes` that returns
        (whether the user is allowed, why).
    :returns: ``{name: function}``.
    """
    def check(target, verb):
        wanted = attributes.Attributes(verb, **target)
        allowed, reason = decide(wanted)
        return {'allowed': allowed, 'reason': reason}

    return {
        'path': lambda _, path: {'path': _given('path', path)},
        'group': lambda _, group: {'group': group},
        'resource': lambda target, resource: {
            **target, 'resource': _given('resource', resource)},
        **{name: _setter(name) for name in (
            'subresource', 'namespace', 'name')},
        'check': check,
        'allowed': lambda decision: decision['allowed'],
        'reason': lambda decision: decision['reason'],
        'errored': lambda decision: False,
        'error': lambda decision: '',
    }


def _setter(name):
    return lambda target, value: {**target, name: value}


def _given(name, value):
    if not value.strip():
        raise ValueError(f'{name} must not be empty')
    return value
