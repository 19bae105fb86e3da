# SPDX-License-Identifier: Apache-2.0
"""Admission of the KubeVirt object.

Source: pkg/virt-operator/webhooks (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt import paths


def validate(request):
    """Refuse a second KubeVirt, and gates both enabled and disabled.

    :raises: ApiError 403, 422
    """
    if request.operation == 'CREATE':
        for other in request.store.list(request.store.kinds.of_object(
                request.new['apiVersion'], request.new['kind'])):
            raise errors.ApiError(
                403, '', 'admission webhook "kubevirt-create-validator.'
                'kubevirt.io" denied the request: KubeVirt is already '
                f'created in namespace {other["metadata"]["namespace"]}')
    if request.operation == 'DELETE' or request.subresource:
        return
    developer = paths.at(request.new, 'spec', 'configuration',
                         'developerConfiguration') or {}
    off = developer.get('disabledFeatureGates') or ()
    causes.refuse('kubevirt-update-validator', [
        causes.Cause(
            f'feature gate "{gate}" exists on both "FeatureGates" and '
            '"DisabledFeatureGates"', 'spec.configuration.'
            'developerConfiguration.featureGates', 'FieldValueForbidden')
        for gate in developer.get('featureGates') or () if gate in off])
