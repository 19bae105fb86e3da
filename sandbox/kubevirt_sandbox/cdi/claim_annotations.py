# SPDX-License-Identifier: Apache-2.0
"""Annotations of claims that CDI's controllers exchange.

The state of an import is kept in annotations of its claim; the DataVolume's
status is computed from them.

Source: pkg/controller/common/util.go (CDI 1.65).
"""
_PREFIX = 'cdi.kubevirt.io/'
_STORAGE = _PREFIX + 'storage.'

POD_PHASE = _STORAGE + 'pod.phase'
POD_READY = _STORAGE + 'pod.ready'
RESTARTS = _STORAGE + 'pod.restarts'
SCHEDULABLE = _STORAGE + 'pod.schedulable'

RUNNING = _STORAGE + 'condition.running'
RUNNING_MESSAGE = RUNNING + '.message'
RUNNING_REASON = RUNNING + '.reason'

CONTENT_TYPE = _STORAGE + 'contentType'
CREATED_FOR = _PREFIX + 'createdForDataVolume'
POPULATED_FOR = _STORAGE + 'populatedFor'
ADOPTION = _PREFIX + 'allowClaimAdoption'
IMMEDIATE = _STORAGE + 'bind.immediate.requested'
PREALLOCATION = _STORAGE + 'preallocation.requested'

SOURCE = _STORAGE + 'import.source'
ENDPOINT = _STORAGE + 'import.endpoint'
SECRET = _STORAGE + 'import.secretName'
CERTIFICATES = _STORAGE + 'import.certConfigMap'
HEADERS = _STORAGE + 'import.extraHeaders'
SECRET_HEADERS = _STORAGE + 'import.secretExtraHeaders'
INSECURE = _STORAGE + 'import.insecureSkipVerify'
CHECKSUM = _STORAGE + 'import.checksum'
IMPORT_POD = _STORAGE + 'import.importPodName'
FATAL = _STORAGE + 'import.fatalError'

UPLOAD = _STORAGE + 'upload.target'
UPLOAD_POD = _STORAGE + 'uploadPodName'
CLONE = 'k8s.io/CloneRequest'

HTTP, NONE, REGISTRY = 'http', 'none', 'registry'
"""Values of :data:`SOURCE`."""


def of(obj):
    """Return the annotations of an object, which must not be changed."""
    return obj['metadata'].get('annotations') or {}


def owner(obj):
    """Return the reference to the object's controller, or None."""
    for reference in obj['metadata'].get('ownerReferences') or ():
        if reference.get('controller'):
            return reference
    return None


def may_exist_before(claim, volume):
    """Tell whether a DataVolume of the same name may use a claim."""
    return is_populated(claim, volume) or _adoptable(claim, volume)


def is_populated(claim, volume):
    """Tell whether a claim was filled for a DataVolume by another party."""
    return of(claim).get(POPULATED_FOR) == volume['metadata']['name']


def _adoptable(claim, volume):
    if of(claim).get(CREATED_FOR) == volume['metadata'].get('uid'):
        return False
    return of(volume).get(ADOPTION, '').lower() in ('true', '1', 't')


def requires_work(claim, volume):
    """Tell whether a claim has to be filled for a DataVolume."""
    return not (is_populated(claim, volume) or _adoptable(claim, volume))
