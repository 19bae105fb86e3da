# SPDX-License-Identifier: Apache-2.0
"""The kinds of CDI, as its CustomResourceDefinitions describe them.

:mod:`admission` validates their objects.

Source: staging/src/kubevirt.io/containerized-data-importer-api/pkg/apis/core/
v1beta1/types.go (CDI 1.65).
"""
import dataclasses

from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.cdi import admission
from kubevirt_sandbox.cdi import schema

GROUP, VERSION = 'cdi.kubevirt.io', 'v1beta1'
UPLOAD_GROUP = 'upload.cdi.kubevirt.io'

_AGE = kinds.Column('Age', 'date', '.metadata.creationTimestamp')


@dataclasses.dataclass(frozen=True)
class Kinds:
    """The kinds of one cluster."""

    data_volume: kinds.Kind
    cdi: kinds.Kind
    config: kinds.Kind
    profile: kinds.Kind
    token_request: kinds.Kind

    def __iter__(self):
        return iter((self.data_volume, self.cdi, self.config, self.profile,
                     self.token_request))


def _answer(tokens):
    def answer(request, call):
        """Fill in a token; the claim need not exist."""
        name = (request.get('spec') or {}).get('pvcName') or ''
        request['status'] = {'token': tokens.make(call.target.namespace,
                                                  name)}
        return request
    return answer


def build(tokens):
    """Make the kinds.

    :param tokens: the :class:`tokens.Tokens` for uploads.
    :returns: :class:`Kinds`.
    """
    return Kinds(
        data_volume=kinds.Kind(
            GROUP, VERSION, 'DataVolume', 'datavolumes', 'datavolume',
            ('dv', 'dvs'), ('all',), schema=schema.DATA_VOLUME, columns=(
                kinds.Column('Phase', 'string', '.status.phase', description=(
                    'The phase the data volume is in')),
                kinds.Column('Progress', 'string', '.status.progress',
                             description='Transfer progress in percentage if '
                             'known, N/A otherwise'),
                kinds.Column('Restarts', 'integer', '.status.restartCount',
                             description='The number of times the transfer '
                             'has been restarted.'), _AGE),
            status=True, crd=True, validate=admission.validate),
        cdi=kinds.Kind(
            GROUP, VERSION, 'CDI', 'cdis', 'cdi', ('cdi', 'cdis'),
            namespaced=False, schema=schema.CDI, columns=(
                _AGE, kinds.Column('Phase', 'string', '.status.phase')),
            crd=True),
        config=kinds.Kind(
            GROUP, VERSION, 'CDIConfig', 'cdiconfigs', 'cdiconfig',
            namespaced=False, schema=schema.CDI_CONFIG, columns=(_AGE,),
            crd=True),
        profile=kinds.Kind(
            GROUP, VERSION, 'StorageProfile', 'storageprofiles',
            'storageprofile', namespaced=False,
            schema=schema.STORAGE_PROFILE, columns=(_AGE,), status=True,
            crd=True),
        token_request=kinds.Kind(
            UPLOAD_GROUP, VERSION, 'UploadTokenRequest',
            'uploadtokenrequests', 'uploadtokenrequest', ('utr', 'utrs'),
            schema=schema.UPLOAD_TOKEN_REQUEST, generation=False,
            verbs=('create',), create=_answer(tokens)))
