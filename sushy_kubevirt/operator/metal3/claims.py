# SPDX-License-Identifier: Apache-2.0
"""Which hosts a HostClaim may have: selectors and HostDeployPolicies.

Decides as baremetal-operator does (``pkg/hostclaim/hostclaim_manager.go``,
main of 2026-08), so that a VM is only created for a claim that gets it.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import json
import re
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator.metal3 import resources

#: Memory of a compiled ``nameMatches``, in bytes.
_REGEXP_MEMORY = 1 << 20

#: Characters of a selector, as JSON. Longer ones, which a tenant can write in
#: any number, would cost memory and time.
LONGEST_SELECTOR = 1 << 14

#: Field of a selector that is too long to be evaluated.
TOO_LONG = 'tooLong'

_KEY = re.compile(command_line.LABEL_KEY)
_VALUE = re.compile(f'(?:{command_line.LABEL_VALUE})?')
_INTEGER = re.compile('[0-9]+')
_HIGHEST = (1 << 63) - 1


class Invalid(Exception):
    """A selector or a policy that baremetal-operator refuses, too."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """A HostClaim.

    :param selector: its ``hostSelector``
    :param failure_domain: '' for any
    :param host: its host
    :param since: when it got its host, RFC 3339 text; None if it has none
    :param unmet: whether baremetal-operator has found no host for it
    :param deleting: whether it is being deleted
    """

    namespace: str
    name: str
    uid: str
    selector: objects.Json
    failure_domain: str = ''
    host: objects.ObjectKey | None = None
    since: str | None = None
    unmet: bool = False
    deleting: bool = False

    @property
    def key(self) -> objects.ObjectKey:
        """Its key."""
        return objects.ObjectKey(self.namespace, self.name)


def read(body: objects.AnyObject) -> Claim:
    """Read a HostClaim."""
    metadata, its = body['metadata'], body.get('spec') or {}
    status = body.get('status') or {}
    host = status.get('bareMetalHost') or {}
    associated: objects.Condition = objects.conditions_of(body).get(
        'Associated', {})
    return Claim(
        metadata['namespace'], metadata['name'], metadata['uid'],
        its.get('hostSelector') or {}, its.get('failureDomain') or '',
        objects.ObjectKey(host.get('namespace') or '', host['name'])
        if host.get('name') else None,
        associated.get('lastTransitionTime')
        if associated.get('status') == 'True' else None,
        not host.get('name')
        and associated.get('status') == 'False'
        and associated.get('reason') == 'NoBareMetalHost',
        'deletionTimestamp' in metadata)


def kept(body: objects.AnyObject) -> objects.Json:
    """Make what of a HostClaim is kept."""
    its, status = body.get('spec') or {}, body.get('status') or {}
    selector = its.get('hostSelector') or {}
    if len(json.dumps(selector)) > LONGEST_SELECTOR:
        selector = {TOO_LONG: True}
    return {
        'metadata': {key: body['metadata'][key] for key in (
            'namespace', 'name', 'uid', 'resourceVersion',
            'deletionTimestamp') if key in body['metadata']},
        'spec': {
            'hostSelector': selector,
            # No label is longer.
            'failureDomain': (its.get('failureDomain') or '')[:64]},
        'status': {key: status[key] for key in (
            'bareMetalHost', 'conditions') if key in status}}


def consumer(host: objects.AnyObject | None) -> objects.ObjectKey | None:
    """Find the claim that a BareMetalHost is bound to.

    :returns: None if it has no consumer, or one that is no HostClaim
    """
    ref = _consumer_ref(host)
    if not ref or not _is_claim(ref):
        return None
    return objects.ObjectKey(ref.get('namespace') or '', ref.get('name') or '')


def has_other_consumer(host: objects.AnyObject | None) -> bool:
    """Tell whether a BareMetalHost has a consumer that is no HostClaim."""
    ref = _consumer_ref(host)
    return bool(ref) and not _is_claim(ref)


def _consumer_ref(host: objects.AnyObject | None) -> objects.Json:
    return ((host or {}).get('spec') or {}).get('consumerRef') or {}


def _is_claim(ref: objects.Json) -> bool:
    return (ref.get('kind') == resources.CLAIM.kind
            and (ref.get('apiVersion') or '').partition('/')[0]
            == resources.GROUP)


def consumer_ref(namespace: str, name: str) -> objects.Json:
    """Make ``spec.consumerRef`` of the host of a claim."""
    return {'apiVersion': resources.CLAIM.api_version,
            'kind': resources.CLAIM.kind, 'namespace': namespace,
            'name': name}


def matches(selector: objects.Json, labels: abc.Mapping[str, str]) -> bool:
    """Tell whether the labels of a host match a selector.

    Operators as in ``labels.NewRequirement`` of apimachinery, in lower case:
    ``DoesNotExist`` is written ``!`` there.

    :param selector: a ``hostSelector``
    :raises: `Invalid`
    """
    wanted = [(key, '=', [value]) for key, value in (
        selector.get('matchLabels') or {}).items()]
    wanted += [(expression.get('key'), expression.get('operator'),
                expression.get('values') or [])
               for expression in selector.get('matchExpressions') or ()]
    # All are checked before any decides.
    return all([_meets(labels, *requirement) for requirement in wanted])


def _meets(labels: abc.Mapping[str, str], key: typing.Any,
           operator: typing.Any, values: list[typing.Any]) -> bool:
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
        number = _integer(own)
        return number is not None and (
            number > other if operator == 'gt' else number < other)
    raise Invalid(
        'hostSelector has an expression that Metal3 does not accept: '
        f'{key} {operator[:20]!r} with {len(values)} values')


def _fits(pattern: re.Pattern[str], text: typing.Any) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def _integer(value: typing.Any) -> int | None:
    """Read the value of a label as ``strconv.ParseInt`` does.

    No label begins with a sign.
    """
    if _fits(_INTEGER, value) and int(value) <= _HIGHEST:
        return int(value)
    return None


def needs_labels(policies: abc.Iterable[objects.Json]) -> bool:
    """Tell whether policies depend on the labels of a namespace."""
    return any(_constraints(policy).get('hasLabels') for policy in policies)


def admitted(policies: abc.Iterable[objects.Json], namespace: str,
             labels: abc.Mapping[str, str]) -> bool:
    """Tell whether policies admit the claims of a namespace to the hosts of
    theirs.

    :param policies: the HostDeployPolicies of one namespace
    :param namespace: of claims
    :param labels: of that namespace
    :raises: `Invalid` if none of them admits it, and one of them is invalid;
        baremetal-operator reads them in random order, until one admits it
    """
    invalid = None
    for policy in policies:
        try:
            if _admits(policy, namespace, labels):
                return True
        except Invalid as e:
            invalid = e
    if invalid:
        raise invalid
    return False


def _constraints(policy: objects.Json) -> objects.Json:
    return (policy.get('spec') or {}).get('hostClaimNamespaces') or {}


def _admits(policy: objects.Json, namespace: str,
            labels: abc.Mapping[str, str]) -> bool:
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


def _search(pattern: str, text: str) -> bool:
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
