# SPDX-License-Identifier: Apache-2.0
"""Reading of Kubernetes' protobuf, for the few kinds that need it.

``kubectl create namespace`` and similar commands send protobuf and do not fall
back to JSON, nor do controllers of controller-runtime for Events. Only these
kinds can be decoded, and responses are JSON. Field numbers are those of the
``generated.proto`` files of ``k8s.io/api``.
"""
import base64
import datetime

from kubevirt_sandbox.api import errors

MEDIA = 'application/vnd.kubernetes.protobuf'

_MAGIC = b'k8s\0'

#: Deeper than any of these messages.
_DEPTH = 20

STRING, INTEGER, BOOLEAN, BYTES, TIME, PORT = (
    'string', 'integer', 'boolean', 'bytes', 'time', 'port')

#: An integer that may be left out: zero is sent only when it is meant.
OPTIONAL = 'optional integer'


class Message:
    """A message: ``{number: (name, type)}``.

    A type is one of the scalars above, a Message, ``[type]`` for a
    repeated field, or ``{str: type}`` for a map.
    """

    def __init__(self, fields):
        self.fields = fields


_OWNER = Message({5: ('apiVersion', STRING), 1: ('kind', STRING),
                  3: ('name', STRING), 4: ('uid', STRING),
                  6: ('controller', BOOLEAN),
                  7: ('blockOwnerDeletion', BOOLEAN)})
_META = Message({
    1: ('name', STRING), 2: ('generateName', STRING),
    3: ('namespace', STRING), 5: ('uid', STRING),
    6: ('resourceVersion', STRING), 7: ('generation', INTEGER),
    8: ('creationTimestamp', TIME), 9: ('deletionTimestamp', TIME),
    10: ('deletionGracePeriodSeconds', OPTIONAL),
    11: ('labels', {str: STRING}), 12: ('annotations', {str: STRING}),
    13: ('ownerReferences', [_OWNER]), 14: ('finalizers', [STRING])})


def _object(fields):
    return Message({1: ('metadata', _META), **fields})


_REFERENCE = Message({
    1: ('kind', STRING), 2: ('namespace', STRING), 3: ('name', STRING),
    4: ('uid', STRING), 5: ('apiVersion', STRING),
    6: ('resourceVersion', STRING), 7: ('fieldPath', STRING)})
_ATTRIBUTES = Message({
    1: ('namespace', STRING), 2: ('verb', STRING), 3: ('group', STRING),
    4: ('version', STRING), 5: ('resource', STRING),
    6: ('subresource', STRING), 7: ('name', STRING)})
_PATH = Message({1: ('path', STRING), 2: ('verb', STRING)})
_SERVICE = _object({2: ('spec', Message({
    1: ('ports', [Message({
        1: ('name', STRING), 2: ('protocol', STRING), 3: ('port', INTEGER),
        4: ('targetPort', PORT), 5: ('nodePort', INTEGER),
        6: ('appProtocol', STRING)})]),
    2: ('selector', {str: STRING}), 3: ('clusterIP', STRING),
    18: ('clusterIPs', [STRING]), 4: ('type', STRING),
    5: ('externalIPs', [STRING]), 7: ('sessionAffinity', STRING),
    10: ('externalName', STRING)}))})

_RULES = [Message({
    1: ('verbs', [STRING]), 2: ('apiGroups', [STRING]),
    3: ('resources', [STRING]), 4: ('resourceNames', [STRING]),
    5: ('nonResourceURLs', [STRING])})]
_BINDING = _object({
    2: ('subjects', [Message({
        1: ('kind', STRING), 2: ('apiGroup', STRING), 3: ('name', STRING),
        4: ('namespace', STRING)})]),
    3: ('roleRef', Message({
        1: ('apiGroup', STRING), 2: ('kind', STRING), 3: ('name', STRING)}))})

#: The kinds that can be read.
KINDS = {
    ('v1', 'Namespace'): _object({}),
    ('v1', 'ConfigMap'): _object({
        2: ('data', {str: STRING}), 3: ('binaryData', {str: BYTES}),
        4: ('immutable', BOOLEAN)}),
    ('v1', 'Secret'): _object({
        2: ('data', {str: BYTES}), 3: ('type', STRING),
        4: ('stringData', {str: STRING}), 5: ('immutable', BOOLEAN)}),
    ('v1', 'ServiceAccount'): _object({
        2: ('secrets', [_REFERENCE]),
        3: ('imagePullSecrets', [Message({1: ('name', STRING)})]),
        4: ('automountServiceAccountToken', BOOLEAN)}),
    ('v1', 'Service'): _SERVICE,
    ('v1', 'Event'): _object({
        2: ('involvedObject', _REFERENCE), 3: ('reason', STRING),
        4: ('message', STRING), 5: ('source', Message({
            1: ('component', STRING), 2: ('host', STRING)})),
        6: ('firstTimestamp', TIME), 7: ('lastTimestamp', TIME),
        8: ('count', INTEGER), 9: ('type', STRING), 10: ('eventTime', TIME),
        11: ('series', Message({
            1: ('count', INTEGER), 2: ('lastObservedTime', TIME)})),
        12: ('action', STRING), 13: ('related', _REFERENCE),
        14: ('reportingComponent', STRING),
        15: ('reportingInstance', STRING)}),
    ('rbac.authorization.k8s.io/v1', 'Role'): _object({2: ('rules', _RULES)}),
    ('rbac.authorization.k8s.io/v1', 'ClusterRole'): _object({
        2: ('rules', _RULES), 3: ('aggregationRule', Message({
            1: ('clusterRoleSelectors', [Message({
                1: ('matchLabels', {str: STRING}),
                2: ('matchExpressions', [Message({
                    1: ('key', STRING), 2: ('operator', STRING),
                    3: ('values', [STRING])})])})])}))}),
    ('rbac.authorization.k8s.io/v1', 'RoleBinding'): _BINDING,
    ('rbac.authorization.k8s.io/v1', 'ClusterRoleBinding'): _BINDING,
    ('authentication.k8s.io/v1', 'TokenRequest'): _object({
        2: ('spec', Message({
            1: ('audiences', [STRING]), 3: ('boundObjectRef', Message({
                1: ('kind', STRING), 2: ('apiVersion', STRING),
                3: ('name', STRING), 4: ('uid', STRING)})),
            4: ('expirationSeconds', OPTIONAL)}))}),
    ('authorization.k8s.io/v1', 'SelfSubjectAccessReview'): _object({
        2: ('spec', Message({1: ('resourceAttributes', _ATTRIBUTES),
                             2: ('nonResourceAttributes', _PATH)}))}),
    ('authorization.k8s.io/v1', 'SelfSubjectRulesReview'): _object({
        2: ('spec', Message({1: ('namespace', STRING)}))}),
    ('authentication.k8s.io/v1', 'SelfSubjectReview'): _object({}),
    ('v1', 'DeleteOptions'): Message({
        1: ('gracePeriodSeconds', OPTIONAL),
        2: ('preconditions', Message({1: ('uid', STRING),
                                      2: ('resourceVersion', STRING)})),
        3: ('orphanDependents', BOOLEAN), 4: ('propagationPolicy', STRING),
        5: ('dryRun', [STRING])}),
}

_ENVELOPE = Message({
    1: ('type', Message({1: ('apiVersion', STRING), 2: ('kind', STRING)})),
    2: ('raw', 'raw'), 3: ('contentEncoding', STRING),
    4: ('contentType', STRING)})


def _varint(raw, at):
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError('varint too long')


def _records(raw):
    """Yield (number, wire type, value) of each field of a message."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(raw, at)
        elif wire == 2:
            length, at = _varint(raw, at)
            value = raw[at:at + length]
            if len(value) != length:
                raise ValueError('message too short')
            at += length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
            value = None
        else:
            raise ValueError(f'wire type {wire}')
        yield number, wire, value


def _signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def _time(raw):
    found = {n: v for n, _, v in _records(raw)}
    seconds, nanos = _signed(found.get(1, 0)), found.get(2, 0)
    if not seconds and not nanos:
        return None
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    text = moment.strftime('%Y-%m-%dT%H:%M:%S')
    return text + (f'.{nanos // 1000:06d}Z' if nanos else 'Z')


def _port(raw):
    found = {n: v for n, _, v in _records(raw)}
    if found.get(1):
        return found.get(3, b'').decode()
    return found.get(2, 0)


def _value(form, wire, value, depth):
    if isinstance(form, Message):
        return _message(form, value, depth + 1)
    if (form in (INTEGER, OPTIONAL, BOOLEAN)) != (wire == 0):
        raise ValueError('wrong wire type')
    if form == STRING:
        return value.decode()
    if form in (INTEGER, OPTIONAL):
        return _signed(value)
    if form == BOOLEAN:
        return bool(value)
    if form == BYTES:
        return base64.b64encode(value).decode()
    if form == TIME:
        return _time(value)
    if form == PORT:
        return _port(value)
    return value


def _message(message, raw, depth=0):
    if depth > _DEPTH:
        raise ValueError('nested too deeply')
    if not isinstance(raw, bytes):
        raise ValueError('wrong wire type')
    found = {}
    for number, wire, value in _records(raw):
        if number not in message.fields:
            continue
        name, form = message.fields[number]
        if isinstance(form, list):
            found.setdefault(name, []).append(
                _value(form[0], wire, value, depth))
        elif isinstance(form, dict):
            entry = _message(Message({1: ('key', STRING),
                                      2: ('value', form[str])}), value,
                             depth + 1)
            found.setdefault(name, {})[entry.get('key', '')] = entry.get(
                'value', '')
        else:
            value = _value(form, wire, value, depth)
            # Zero values are absent fields in protobuf.
            if value not in ('', None) and (form != INTEGER or value):
                found[name] = value
    return found


def decode(raw):
    """Decode an object into a JSON value.

    :param raw: the body of a request.
    :raises errors.ApiError: 400; 415 for kinds that are not known here.
    """
    try:
        if raw[:4] != _MAGIC:
            raise ValueError('no magic number')
        envelope = _message(_ENVELOPE, raw[4:])
        about = envelope.get('type', {})
        key = about.get('apiVersion', ''), about.get('kind', '')
        message = KINDS.get(key) or (
            KINDS['v1', 'DeleteOptions'] if key[1] == 'DeleteOptions'
            else None)
        if message is None:
            raise errors.unsupported_media_type(
                ['application/json', 'application/yaml'])
        found = _message(message, envelope.get('raw', b''))
    except (ValueError, IndexError, OverflowError) as exc:
        raise errors.bad_request(
            f'error decoding protobuf: {exc}') from None
    return {'apiVersion': key[0], 'kind': key[1], **found}
