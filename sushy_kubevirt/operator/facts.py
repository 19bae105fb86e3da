# SPDX-License-Identifier: Apache-2.0
"""Facts: what was read of the cluster for one BMC.

Nothing here is derived, but for the summaries of Secrets, whose contents are
not kept. `verdict` says what follows.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing

from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator import spec

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import pki
    from sushy_kubevirt.operator import secret_summary

#: Objects by their reference, as the API has them.
Live: typing.TypeAlias = dict[bmc_resources.ObjectRef, objects.Json]


class Authority(typing.NamedTuple):
    """The certificate authority.

    :param bundle: PEM text of all certificates that clients may verify with
    """

    pair: pki.Pair
    bundle: str


class Refusal(typing.NamedTuple):
    """A write that the API server refused.

    :param subject: the object, as 'Kind name'
    :param message: of the API server
    """

    subject: str
    message: str


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What was read for one BMC: None for what does not exist.

    :param live: all objects with names of the BMC's but Secrets; also foreign
        ones
    :param vm: the VM; its metadata is enough
    :param auth: the Secret that the operator generates or copies
    :param source: the Secret that the BMC names for user name and password
    :param tls: that with the certificate that the operator issues
    :param user_tls: that which the BMC names for its certificate
    :param state: that with the BMC's state
    :param authority: None if the BMC needs none
    :param boot_override: that of the VM, see `boot_override.of`
    :param placed: where it runs
    :param finalizers: of the BMC
    :param observed_generation: generation of the spec that was last reconciled
    :param reserved: whether another BMC needs the name of `naming.vm_service`
        for its own Service
    :param digits: whether names of Services may begin with a digit
    :param route_problem: why it cannot have a Route: `routes.MISSING`,
        `routes.FORBIDDEN` or None
    :param route_conflict: see `plan.has_route_conflict`
    :param refused: the write that has just been refused
    :param now: when it was read; aware
    """

    live: Live = dataclasses.field(default_factory=dict)
    vm: objects.Object | None = None
    auth: secret_summary.Summary | None = None
    source: secret_summary.Summary | None = None
    tls: secret_summary.Summary | None = None
    user_tls: secret_summary.Summary | None = None
    state: secret_summary.Summary | None = None
    authority: Authority | None = None
    boot_override: objects.Json | None = None
    placed: placement.Placement = placement.Placement()
    finalizers: tuple[str, ...] = ()
    observed_generation: int | None = None
    reserved: bool = False
    digits: bool = True
    route_problem: str | None = None
    route_conflict: bool = False
    refused: Refusal | None = None
    now: datetime.datetime = dataclasses.field(default_factory=_now)


def object_refs(bmc: spec.Bmc) -> list[bmc_resources.ObjectRef]:
    """List the objects that a BMC may have, without Secrets."""
    base, here = naming.base(bmc.name), bmc.namespace
    access = naming.access(bmc.name, here, bmc.vm.namespace)
    second = naming.possible_vm_service(bmc)
    return [bmc_resources.ObjectRef(*ref) for ref in (
        *([('Service', here, second)] if second else ()),
        ('Deployment', here, base),
        ('Service', here, base),
        ('Route', here, naming.route(bmc)),
        ('ServiceAccount', here, base),
        ('NetworkPolicy', here, base),
        ('ConfigMap', here, base),
        ('ConfigMap', here, naming.authority(bmc.name)),
        ('RoleBinding', bmc.vm.namespace, access),
        ('Role', bmc.vm.namespace, access))]


def secret_refs(bmc: spec.Bmc) -> list[objects.ObjectKey | None]:
    """List the Secrets that a BMC uses.

    :returns: of the fields ``auth`` to ``state`` of `Facts`, in their order
    """
    here, served = bmc.namespace, deployments.tls_secret(bmc)
    return [
        objects.ObjectKey(here, naming.auth(bmc.name)), bmc.auth,
        objects.ObjectKey(here, naming.tls(bmc.name)),
        objects.ObjectKey(here, served)
        if served and bmc.redfish.secret else None,
        objects.ObjectKey(bmc.vm.namespace, state_secret.name(bmc.vm.name))]
