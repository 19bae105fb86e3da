# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events of BMCs, which ``kubectl describe`` shows.

An Event reports a condition that has changed. Its name is a digest of its
content, so that a repeated Event is counted and does not become another one.
"""

from __future__ import annotations

import hashlib

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import naming

NORMAL, WARNING = 'Normal', 'Warning'

#: Reasons without an Event: they are temporary, or follow from another
#: condition that is reported.
_UNREPORTED = (
    'SecretPending', 'EmulatorStarting', 'ServicePending',
    'CertificatePending', 'LoadBalancerPending', 'WaitingForSecret',
    'WaitingForVirtualMachine', 'WaitingForCertificate', 'WaitingForBMC',
    'HostDeleting', 'BareMetalHostsNotListed')

#: Reasons of true conditions that are reported; None for all reasons.
_REPORTED = {conditions.SECRET: (conditions.OWNED_BY_HOST,),
             conditions.EMULATOR: ('RolloutWaiting',),
             conditions.ENDPOINT: (conditions.SECOND_NAME_TAKEN,),
             conditions.READY: None}


def of_change(old, new):
    """List the Events for a change of the status.

    :param old: list of conditions as they were, dicts
    :param new: list of conditions as they are, dicts
    :returns: list of (type, reason, message)
    """
    before = {one['type']: (one['status'], one['reason'])
              for one in old or ()}
    found = []
    for one in new:
        now = one['status'], one['reason']
        if before.get(one['type']) == now:
            continue
        if one['status'] == 'True':
            if one['type'] in _REPORTED and (
                    _REPORTED[one['type']] is None
                    or one['reason'] in _REPORTED[one['type']]):
                found.append((NORMAL, one['reason'], one['message']))
        elif (one['type'] != conditions.READY
                and one['reason'] not in _UNREPORTED):
            found.append((WARNING, one['reason'], one['message']))
    return found


def manifest(bmc, type_, reason, message, now, resource=bmc_resources.BMC):
    """Make an Event.

    :param bmc: a `spec.Bmc`; or what has its namespace, name and uid, of
        another resource
    :param type_: `NORMAL` or `WARNING`
    :param reason: one word
    :param message: a sentence
    :param now: RFC 3339 text
    :param resource: a `api_resources.Resource`
    :returns: dict
    """
    digest = hashlib.sha256('\0'.join(
        (bmc.uid, type_, reason, message)).encode()).hexdigest()[:16]
    return {
        'apiVersion': 'v1', 'kind': 'Event',
        'metadata': {'name': f"{bmc.name[:230].rstrip('-.')}.{digest}",
                     'namespace': bmc.namespace},
        'involvedObject': {
            'apiVersion': resource.api_version, 'kind': resource.kind,
            'name': bmc.name, 'namespace': bmc.namespace, 'uid': bmc.uid},
        'type': type_, 'reason': reason, 'message': message[:1024],
        'firstTimestamp': now, 'lastTimestamp': now, 'count': 1,
        'source': {'component': naming.OPERATOR},
        'reportingComponent': naming.OPERATOR, 'reportingInstance': ''}


async def record(api, made) -> None:
    """Create an Event, or increase its count.

    :param api: an `api.Api`
    :param made: dict, of `manifest`
    :raises: `errors.MachineError`
    """
    metadata = made['metadata']
    where = bmc_resources.EVENT, metadata['namespace']
    try:
        await api.create(*where, made)
        return
    except errors.Conflict:
        pass
    known = await api.get(*where, metadata['name'])
    await api.patch(*where, metadata['name'], {
        'metadata': {'resourceVersion': known['metadata'][
            'resourceVersion']},
        'lastTimestamp': made['lastTimestamp'],
        'count': (known.get('count') or 1) + 1})
