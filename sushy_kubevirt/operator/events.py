# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events of BMCs, which ``kubectl describe`` shows.

An Event reports a condition that has changed. Its name is a digest of its
content, so that a repeated Event is counted and does not become another one.
"""

from __future__ import annotations

from collections import abc
import datetime
import hashlib
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import api

LOG = logging.getLogger(__name__)

NORMAL, WARNING = 'Normal', 'Warning'

#: Reasons without an Event: they are temporary, or follow from another
#: condition that is reported.
_UNREPORTED = (
    'SecretPending', 'EmulatorStarting', 'ServicePending',
    'CertificatePending', 'LoadBalancerPending', 'WaitingForSecret',
    'WaitingForVirtualMachine', 'WaitingForCertificate', 'WaitingForBMC',
    'HostDeleting', 'BareMetalHostsNotListed')

#: Reasons of true conditions that are reported; None for all reasons, when the
#: condition has changed.
_REPORTED: dict[str, tuple[str, ...] | None] = {
    conditions.SECRET: (conditions.OWNED_BY_HOST,
                        conditions.UNUSABLE_FOR_IPMI),
    conditions.EMULATOR: ('RolloutWaiting', conditions.MARGIN_INVALID),
    conditions.ENDPOINT: (conditions.SECOND_NAME_TAKEN,),
    conditions.READY: None}


class Subject(typing.Protocol):
    """The object that an Event is about, such as a `spec.Bmc`."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Its uid."""


class Event(typing.NamedTuple):
    """What an Event says.

    :param type: `NORMAL` or `WARNING`
    :param reason: one word
    :param message: a sentence
    """

    type: str
    reason: str
    message: str


def of_change(old: abc.Iterable[objects.Condition] | None,
              new: abc.Iterable[objects.Condition]) -> list[Event]:
    """List the Events for a change of the conditions.

    :param old: None for a new object; that it is ready at once is no Event
    """
    before = {condition['type']: (condition['status'], condition['reason'])
              for condition in old or ()}
    changes = []
    for condition in new:
        type_, status, reason = (
            condition['type'], condition['status'], condition['reason'])
        if before.get(type_) == (status, reason):
            continue
        if status == 'True':
            reported = _REPORTED.get(type_, ())
            if type_ in before if reported is None else reason in reported:
                changes.append(Event(NORMAL, reason, condition['message']))
        elif (type_ not in conditions.SUMMARIES
              and reason not in _UNREPORTED):
            changes.append(Event(WARNING, reason, condition['message']))
    return changes


def now() -> str:
    """Return the present time, RFC 3339 text."""
    return datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')


def manifest(subject: Subject, event: Event, now: str,
             resource: api_resources.AnyResource) -> objects.Json:
    """Make an Event; see `record`."""
    type_, reason, message = event
    digest = hashlib.sha256('\0'.join(
        (subject.uid, type_, reason, message)).encode()).hexdigest()[:16]
    return {
        'apiVersion': 'v1', 'kind': 'Event',
        'metadata': {'name': f"{subject.name[:230].rstrip('-.')}.{digest}",
                     'namespace': subject.namespace},
        'involvedObject': {
            'apiVersion': resource.api_version, 'kind': resource.kind,
            'name': subject.name, 'namespace': subject.namespace,
            'uid': subject.uid},
        'type': type_, 'reason': reason, 'message': message[:1024],
        'firstTimestamp': now, 'lastTimestamp': now, 'count': 1,
        'source': {'component': naming.OPERATOR},
        'reportingComponent': naming.OPERATOR, 'reportingInstance': ''}


async def record(client: api.Api, subject: Subject, event: Event, now: str,
                 resource: api_resources.AnyResource = bmc_resources.BMC
                 ) -> bool:
    """Create an Event, or increase its count.

    :param now: RFC 3339 text
    :param resource: of the subject
    :returns: whether it is written; Events are informational only
    """
    body = manifest(subject, event, now, resource)
    name, namespace = body['metadata']['name'], subject.namespace
    try:
        try:
            await client.create(bmc_resources.EVENT, namespace, body)
        except errors.Conflict:
            known = await client.get(bmc_resources.EVENT, namespace, name)
            await client.patch(bmc_resources.EVENT, namespace, name, {
                'metadata': {'resourceVersion': known['metadata'][
                    'resourceVersion']},
                'lastTimestamp': now,
                'count': (known.get('count') or 1) + 1})
    except errors.MachineError as e:
        LOG.info('Event not written: %s', e)
        return False
    return True
