# SPDX-License-Identifier: Apache-2.0
"""What `ClaimController` needs of objects."""

from __future__ import annotations

import json

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator.metal3 import claims
from sushy_kubevirt.operator.metal3 import host_state

#: Characters of a selector, as JSON. Longer ones, which a tenant can write in
#: any number, would cost memory and time.
LONGEST_SELECTOR = 1 << 14


def of_claim(body: objects.AnyObject) -> objects.Json:
    """Make what of a HostClaim is kept."""
    its, status = body.get('spec') or {}, body.get('status') or {}
    selector = its.get('hostSelector') or {}
    if len(json.dumps(selector)) > LONGEST_SELECTOR:
        selector = {claims.TOO_LONG: True}
    return {
        'metadata': _identity(body, 'deletionTimestamp'),
        'spec': {
            'hostSelector': selector,
            # No label is longer.
            'failureDomain': (its.get('failureDomain') or '')[:64]},
        'status': {key: status[key] for key in (
            'bareMetalHost', 'conditions') if key in status}}


def is_paused(bmc: objects.AnyObject) -> bool:
    """Tell whether the host of a BMC is, or was, paused, or was moved.

    `HostController` records the pause before the host is gone.
    """
    status = bmc.get('status') or {}
    return bool((status.get('bareMetalHost') or {}).get('paused')) or (
        stored_names.HOST_MOVED in (bmc['metadata'].get('annotations') or {}))


def of_host(body: objects.AnyObject) -> objects.Json:
    """Make what of a BareMetalHost matters."""
    history = (body.get('status') or {}).get('operationHistory') or {}
    its, metadata = body.get('spec') or {}, body['metadata']
    provisioned = (history.get('provision') or {}).get('start')
    if stored_names.HAD_HOST in (metadata.get('annotations') or {}):
        provisioned = provisioned or metadata['creationTimestamp']
    return {
        'metadata': _identity(body),
        'spec': {'consumerRef': its.get('consumerRef')},
        'paused': host_state.is_paused(body),
        # When an image was last written or booted, at the latest: RFC 3339
        # text.
        'provisioned': provisioned}


def _identity(body: objects.AnyObject, *names: str) -> objects.Json:
    return {key: body['metadata'][key] for key in (
        'namespace', 'name', 'uid', 'resourceVersion', *names)
        if key in body['metadata']}
