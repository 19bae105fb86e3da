# SPDX-License-Identifier: Apache-2.0
"""Parses request bodies: JSON or YAML, within limits."""
import json
import re

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import negotiation
from kubevirt_sandbox.api import protobuf
from kubevirt_sandbox.api import web

#: As kube-apiserver: nothing larger fits into etcd.
LIMIT = 3 * 1024 * 1024

#: No real object is nested deeper; Python's recursion limit is higher.
DEPTH = 200

_SURROGATE = re.compile('[\ud800-\udfff]')


def media_type(request):
    """Return the media type of the body in lower case."""
    return request.headers.get('Content-Type', '').partition(
        ';')[0].strip().lower()


async def read(request):
    """Read the body, bytes.

    :raises errors.ApiError: 413.
    """
    try:
        return await request.read()
    except web.BodyTooLargeError:
        raise errors.too_large(LIMIT) from None


def _load(raw, **options):
    """Parse JSON as kube-apiserver does.

    What is no text becomes U+FFFD: unpaired surrogates and invalid UTF-8
    (Go's encoding/json, ``unquoteBytes`` of decode.go, of which
    sigs.k8s.io/json is a copy).

    :raises ValueError: it is no JSON.
    """
    value = json.loads(raw.decode(errors='replace'), **options)
    if b'\\u' in raw:
        text = json.dumps(value, ensure_ascii=False)
        if _SURROGATE.search(text):
            value = json.loads(_SURROGATE.sub('\ufffd', text))
    return value


def parse_json(raw, duplicates=None):
    """Parse JSON.

    :param duplicates: list to which duplicate names are added.
    :raises errors.ApiError: 400.
    """
    def pairs(items):
        result = dict(items)
        if len(result) != len(items):
            seen = set()
            for name, _ in items:
                if name in seen:
                    duplicates.append(name)
                seen.add(name)
        return result

    def constant(text):
        raise ValueError(f'invalid character \'{text[0]}\' looking for '
                         'beginning of value')
    try:
        value = _load(
            raw, parse_constant=constant,
            object_pairs_hook=None if duplicates is None else pairs)
        if raw.count(b'{') + raw.count(b'[') > DEPTH:
            _check_depth(value)
        return value
    except (ValueError, RecursionError) as exc:
        raise errors.bad_request(
            'the object provided is unrecognized (must be of type '
            f'Status): couldn\'t get version/kind; json parse error: {exc}'
        ) from None


def parse_yaml(raw):
    """Parse YAML or JSON into a JSON value.

    :raises errors.ApiError: 400.
    """
    try:
        value = _load(raw, parse_constant=_not_a_number)
    except (ValueError, RecursionError):
        # Much slower; most clients send JSON in any case.
        from kubevirt_sandbox.api import yaml_bodies
        value = yaml_bodies.load(raw)
    try:
        _check_depth(value)
    except (ValueError, RecursionError) as exc:
        raise errors.bad_request(
            f'error decoding YAML: {exc}') from None
    return value


def _not_a_number(text):
    raise ValueError(text)


def _check_depth(value, depth=0):
    if depth > DEPTH:
        raise ValueError('exceeded max depth')
    if isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise ValueError(f'key {key!r} is not a string')
            if isinstance(entry, (dict, list)):
                _check_depth(entry, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            if isinstance(entry, (dict, list)):
                _check_depth(entry, depth + 1)


async def read_object(request, kind, duplicates=None):
    """Read an object of a kind.

    :returns: a dict.
    :raises errors.ApiError: 400, 413, 415.
    """
    raw = await read(request)
    media = media_type(request)
    if media in ('', negotiation.JSON):
        obj = parse_json(raw, duplicates)
    elif media == negotiation.YAML:
        obj = parse_yaml(raw)
    elif media == protobuf.MEDIA and not kind.crd:
        obj = protobuf.decode(raw)
    else:
        raise errors.unsupported_media_type(
            [negotiation.JSON, negotiation.YAML])
    return checked(obj, kind)


def checked(obj, kind):
    """Return an object after checking that it is of the kind.

    :raises errors.ApiError: 400.
    """
    if not isinstance(obj, dict):
        raise errors.bad_request(
            'json: cannot unmarshal '
            f'{"array" if isinstance(obj, list) else type(obj).__name__} '
            'into Go value of type map[string]interface {}')
    for name in ('kind', 'apiVersion'):
        if not obj.get(name):
            if kind.crd:
                title = 'Kind' if name == 'kind' else 'apiVersion'
                raise errors.bad_request(
                    f'Object \'{title}\' is missing in \'object\'')
            obj[name] = getattr(kind, 'kind' if name == 'kind'
                                else 'api_version')
        elif not isinstance(obj[name], str):
            raise errors.bad_request(f'{name} must be a string')
    if obj['apiVersion'] != kind.api_version:
        raise errors.bad_request(
            f'the API version in the data ({obj["apiVersion"]}) does not '
            f'match the expected API version ({kind.api_version})')
    if obj['kind'] != kind.kind:
        raise errors.bad_request(
            f'{obj["kind"]} in version "{kind.version}" cannot be handled '
            f'as a {kind.kind}: the kind in the data ({obj["kind"]}) does '
            f'not match the expected kind ({kind.kind})')
    return obj
