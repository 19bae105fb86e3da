# SPDX-License-Identifier: Apache-2.0
"""Which hosts a HostClaim may have: selectors and HostDeployPolicies.

Decides as baremetal-operator does (``pkg/hostclaim/hostclaim_manager.go``,
main of 2026-08), so that a VM is only created for a claim that gets it.
"""

from __future__ import annotations

import dataclasses
import re

from sushy_kubevirt.operator.metal3 import resources

#: Memory of a compiled ``nameMatches``, in bytes.
_REGEXP_MEMORY = 1 << 20

#: Field of a selector that is too long to be evaluated.
TOO_LONG = 'tooLong'

_WORD = r'[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?'
_PART = '[a-z0-9](?:[-a-z0-9]*[a-z0-9])?'
_KEY = re.compile(rf'(?:(?=[^/]{{1,253}}/){_PART}(?:\.{_PART})*/)?{_WORD}')
_VALUE = re.compile(f'(?:{_WORD})?')
_INTEGER = re.compile('[0-9]+')
_HIGHEST = (1 << 63) - 1


class Invalid(Exception):
    """A selector or a policy that baremetal-operator refuses, too."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """A HostClaim.

    :param selector: dict, its ``hostSelector``
    :param failure_domain: '' for any
    :param host: (namespace, name) of its host, or None
    :param since: when it got its host, RFC 3339 text; None if it has none
    :param unmet: whether baremetal-operator has found no host for it
    :param deleting: whether it is being deleted
    """

    namespace: str
    name: str
    uid: str
    selector: dict
    failure_domain: str = ''
    host: tuple | None = None
    since: str | None = None
    unmet: bool = False
    deleting: bool = False


def read(body):
    """Read a HostClaim.

    :param body: dict
    :returns: `Claim`
    """
    metadata, its = body['metadata'], body.get('spec') or {}
    status = body.get('status') or {}
    host = status.get('bareMetalHost') or {}
    associated = next((one for one in status.get('conditions') or ()
                       if one['type'] == 'Associated'), {})
    return Claim(
        metadata['namespace'], metadata['name'], metadata['uid'],
        its.get('hostSelector') or {}, its.get('failureDomain') or '',
        (host.get('namespace'), host['name']) if host.get('name') else None,
        associated.get('lastTransitionTime')
        if associated.get('status') == 'True' else None,
        not host.get('name')
        and associated.get('status') == 'False'
        and associated.get('reason') == 'NoBareMetalHost',
        'deletionTimestamp' in metadata)


def consumer(host):
    """Find the claim that a host is bound to.

    :param host: dict, a BareMetalHost
    :returns: (namespace, name); None if it has no consumer; () if that is no
        HostClaim
    """
    ref = (host.get('spec') or {}).get('consumerRef')
    if not ref:
        return None
    if (ref.get('kind') != resources.CLAIM.kind
            or (ref.get('apiVersion') or '').partition('/')[0]
            != resources.GROUP):
        return ()
    return ref.get('namespace'), ref.get('name')


def consumer_ref(namespace, name):
    """:returns: ``spec.consumerRef`` of the host of a claim"""
    return {'apiVersion': resources.CLAIM.api_version,
            'kind': resources.CLAIM.kind, 'namespace': namespace,
            'name': name}


def matches(selector, labels):
    """Tell whether the labels of a host match a selector.

    Operators as in ``labels.NewRequirement`` of apimachinery, in lower case:
    ``DoesNotExist`` is written ``!`` there.

    :param selector: dict, a ``hostSelector``
    :param labels: dict
    :raises: `Invalid`
    """
    wanted = [(key, '=', [value]) for key, value in (
        selector.get('matchLabels') or {}).items()]
    wanted += [(one.get('key'), one.get('operator'), one.get('values') or [])
               for one in selector.get('matchExpressions') or ()]
    # All are checked before any decides.
    return all([_meets(labels, *one) for one in wanted])


def _meets(labels, key, operator, values):
    operator = str(operator).lower()
    if not _fits(_KEY, key) or not all(
            _fits(_VALUE, value) for value in values):
        raise Invalid(
            f'hostSelector has no valid label: {key!r} {values!r}'[:250])
    own = labels.get(key)
    if operator in ('in', 'notin') and values:
        return (own in values) == (operator == 'in')
    if operator in ('=', '==', '!=') and len(values) == 1:
        return (own == values[0]) == (operator != '!=')
    if operator in ('exists', '!') and not values:
        return (own is not None) == (operator == 'exists')
    if operator in ('gt', 'lt') and len(values) == 1 and (
            other := _integer(values[0])) is not None:
        own = _integer(own)
        return own is not None and (
            own > other if operator == 'gt' else own < other)
    raise Invalid(
        'hostSelector has an expression that Metal3 does not accept: '
        f'{key} {operator[:20]!r} with {len(values)} values')


def _fits(pattern, text):
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def _integer(value):
    """:returns: the value of a label as ``strconv.ParseInt`` reads it, or None

    No label begins with a sign.
    """
    if _fits(_INTEGER, value) and int(value) <= _HIGHEST:
        return int(value)
    return None


def needs_labels(policies):
    """Tell whether policies depend on the labels of a namespace."""
    return any(_constraints(one).get('hasLabels') for one in policies)


def admitted(policies, namespace, labels) -> bool:
    """Tell whether policies admit the claims of a namespace to the hosts of
    theirs.

    :param policies: iterable of dicts, the HostDeployPolicies of one namespace
    :param namespace: name, of claims
    :param labels: dict, of that namespace
    :raises: `Invalid` if none of them admits it, and one of them is invalid;
        baremetal-operator reads them in random order, until one admits it
    """
    invalid = None
    for one in policies:
        try:
            if _admits(one, namespace, labels):
                return True
        except Invalid as e:
            invalid = e
    if invalid:
        raise invalid
    return False


def _constraints(policy):
    return (policy.get('spec') or {}).get('hostClaimNamespaces') or {}


def _admits(policy, namespace, labels):
    if (policy.get('spec') or {}).get('hostClaimNamespaces') is None:
        return False
    its = _constraints(policy)
    names, pattern = its.get('names'), its.get('nameMatches')
    if names is not None and namespace not in names:
        return False
    if pattern and not _search(pattern, namespace):
        return False
    # No value, or an empty one, stands for any.
    return all(pair['name'] in labels
               and pair.get('value') in (None, '', labels[pair['name']])
               for pair in its.get('hasLabels') or ())


def _search(pattern, text) -> bool:
    """Search as Go does, whose regular expressions are RE2's.

    Unlike `re`, RE2 takes time in proportion to the text, whatever the
    pattern is.

    :raises: `Invalid`
    """
    try:
        import re2
    except ImportError:
        raise Invalid('nameMatches needs the Python package google-re2, which '
                      'is not installed') from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _REGEXP_MEMORY
    try:
        return re2.compile(pattern, options).search(text) is not None
    except re2.error as e:
        reason = e.args[0] if e.args else e
        if isinstance(reason, bytes):
            reason = reason.decode('utf-8', 'replace')
        raise Invalid(f'nameMatches {pattern!r}: {reason}') from None
