# SPDX-License-Identifier: Apache-2.0
"""Admission of DataVolumes.

Messages are those of CDI's webhook.

Source: pkg/apiserver/webhooks/datavolume-validate.go, util.go, pkg/util/
checksum/checksum.go (CDI 1.65).
"""
import re

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.cdi import claim_annotations

_MODES = ('ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany',
          'ReadWriteOncePod')
_DIGESTS = {'md5': 32, 'sha1': 40, 'sha256': 64, 'sha512': 128}
_INVALID, _DUPLICATE = 'FieldValueInvalid', 'FieldValueDuplicate'
_MIB = 1 << 20


class _Refused(Exception):
    """The cause of a refusal: (message, field) or (message, field, type)."""


def _refuse(message, field, reason=_INVALID):
    """Return a 422 error in CDI's format: a blank before each sentence."""
    raise errors.ApiError(
        422, '', 'admission webhook "datavolume-validate.cdi.kubevirt.io" '
        f'denied the request:  {message}',
        {'causes': [{'reason': reason, 'message': message, **(
            {'field': field} if field else {})}]})


def validate(admission):
    """Refuse a DataVolume that could never be filled, or that changes.

    :raises errors.ApiError: 422.
    """
    new, old = admission.new, admission.old
    if new is None or admission.subresource:
        return
    try:
        if old is not None and new['spec'] != old['spec']:
            raise _Refused('Cannot update DataVolume Spec',
                           'DataVolume.Spec', _DUPLICATE)
        if old is None:
            _check_name(new, admission.store)
        _check_spec(new['spec'])
    except _Refused as exc:
        _refuse(*exc.args)


def _check_name(new, store):
    meta = new['metadata']
    claim = store.find(core.CLAIM, meta['namespace'], meta['name'])
    if claim is None or claim_annotations.may_exist_before(claim, new):
        return
    owner = claim_annotations.owner(claim)
    if owner is None or owner['kind'] != 'DataVolume':
        raise _Refused(
            f'Destination PVC {meta["namespace"]}/{meta["name"]} already '
            'exists', 'DataVolume.Name', _DUPLICATE)


def _check_spec(spec):
    if spec.get('pvc') is None and spec.get('storage') is None:
        raise _Refused('Missing Data volume PVC', 'spec.PVC')
    if spec.get('pvc') is not None and spec.get('storage') is not None:
        raise _Refused('Duplicate storage definition, both target storage '
                       'and target pvc defined', 'spec.PVC.Storage')
    _check_size(spec)
    claim = spec.get('pvc')
    claim = spec['storage'] if claim is None else claim
    if len(claim.get('storageClassName') or '') > 253:
        raise _Refused('Name cannot be longer than 253 characters', '')
    _check_modes(claim.get('accessModes') or [], spec.get('pvc') is not None)
    if claim.get('dataSource') or claim.get('dataSourceRef'):
        if spec.get('source') or spec.get('sourceRef'):
            raise _Refused('External population is incompatible with Source '
                           'and SourceRef', 'spec.source')
        return
    if (spec.get('source') is None) == (spec.get('sourceRef') is None):
        raise _Refused('Data volume should have either Source or SourceRef, '
                       'or be externally populated', 'spec.source')
    if spec.get('sourceRef') is not None:
        kind = spec['sourceRef'].get('kind')
        if kind != 'DataSource':
            raise _Refused(
                f'Unsupported sourceRef kind {kind}, currently only '
                'DataSource is supported', 'spec.sourceRef.Kind')
        return
    _check_source(spec)


def _check_size(spec):
    name = 'Storage' if spec.get('pvc') is None else 'PVC'
    field = f'spec.{name}.resources.requests.size'
    claim = spec['storage'] if spec.get('pvc') is None else spec['pvc']
    size = ((claim.get('resources') or {}).get('requests') or {}).get(
        'storage')
    source = spec.get('source') or {}
    if size is None:
        # The size of a copy is that of what is copied.
        if spec.get('pvc') is not None or not (
                spec.get('sourceRef') or source.get('pvc')
                or source.get('snapshot')):
            raise _Refused(f'{name} size is missing', field)
        return
    size = quantity.value(size)
    if size <= 0:
        raise _Refused(f'{name} size can\'t be equal or less than zero',
                       field)
    if size < _MIB:
        raise _Refused(f'{name} size should be at least 1MiB', field)


def _check_modes(modes, exactly_one):
    field = 'spec.PVC.accessModes'
    if exactly_one and not modes:
        raise _Refused('Required value: at least 1 access mode is required',
                       field)
    if exactly_one and len(modes) > 1:
        raise _Refused('PVC multiple accessModes', field)
    if any(mode not in _MODES for mode in modes):
        raise _Refused(
            f'Unsupported value: "{modes[0]}": supported values: '
            '"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", '
            '"ReadWriteOncePod"', field)


def _check_source(spec):
    found = {name: value for name, value in spec['source'].items()
             if value is not None}
    if not found:
        raise _Refused('Missing Data volume source', 'spec.source')
    if len(found) > 1:
        raise _Refused('Multiple Data volume sources', 'spec.source')
    if 'http' in found:
        _check_url(found['http'].get('url', ''), 'HTTP')
        _check_digest(found['http'].get('checksum') or '')
    for name in ('s3', 'gcs', 'imageio', 'vddk'):
        if name in found:
            _check_url(found[name].get('url') or '', name.upper())
    if 'blank' in found and spec.get('contentType') == 'archive':
        raise _Refused('SourceType cannot be blank and the contentType be '
                       'archive', 'spec.contentType')
    for name in ('pvc', 'snapshot'):
        if name in found and not (found[name].get('name')
                                  and found[name].get('namespace')):
            title = 'PVC' if name == 'pvc' else name
            raise _Refused(f'spec.source.{title} source {title} is not '
                           'valid', f'spec.source.{title}')


def _check_url(url, kind):
    fault = url_fault(url)
    if fault:
        raise _Refused(f'spec.source {fault}', f'spec.source.{kind}.url')


_HOST = re.compile(r'(\[[0-9A-Fa-f:.%]+\]|[^\s"<>\\^`{|}\[\]:/?#]*)(:[0-9]*)?')


def url_fault(url):
    """Describe why CDI refuses a URL, or return ''.

    As ``net/url.ParseRequestURI`` of Go reads it.
    """
    if not url:
        return 'source URL is empty'
    invalid = f'Invalid source URL: {url}'
    match = re.match(r'([A-Za-z][A-Za-z0-9+.-]*):(.*)', url, re.DOTALL)
    if any(ord(c) < 0x20 or ord(c) == 0x7f for c in url) or (
            re.search(r'%(?![0-9A-Fa-f]{2})', url.partition('?')[0])):
        return invalid
    if match is None:
        # Only an absolute path is a request URI without a scheme.
        return (f'Invalid source URL scheme: {url}' if url.startswith('/')
                else invalid)
    scheme, rest = match[1].lower(), match[2]
    if rest.startswith('//'):
        host = re.split('[/?]', rest[2:], maxsplit=1)[0].rpartition('@')[2]
        if not _HOST.fullmatch(host):
            return invalid
    if scheme not in ('http', 'https', 'gs'):
        return f'Invalid source URL scheme: {url}'
    return ''


def _check_digest(text):
    if not text:
        return
    algorithm, colon, digest = text.partition(':')
    algorithm = algorithm.strip().lower()
    digest = digest.strip().lower()
    if not colon:
        why = ('invalid checksum format: expected \'algorithm:hash\', got '
               f'\'{text}\'')
    elif not digest:
        why = 'checksum hash value cannot be empty'
    elif algorithm not in _DIGESTS:
        why = (f'unsupported hash algorithm \'{algorithm}\': supported '
               'algorithms are: md5, sha1, sha256, sha512')
    elif len(digest) != _DIGESTS[algorithm]:
        why = (f'invalid {algorithm} hash length: expected '
               f'{_DIGESTS[algorithm]} hex characters, got {len(digest)}')
    elif not re.fullmatch('[0-9a-f]*', digest):
        why = 'checksum hash is not valid hexadecimal'
    else:
        return
    raise _Refused(f'Invalid checksum format: {why}',
                   'spec.source.HTTP.checksum')
