# SPDX-License-Identifier: Apache-2.0
"""Observed state of one BMC, assembled from the cache without requests."""

from __future__ import annotations

from collections import abc
import dataclasses
import datetime
import typing

from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import desired_state
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator import spec


#: Objects by their reference, as the API has them.
Live: typing.TypeAlias = dict[bmc_resources.ObjectRef, objects.Json]


class Target(typing.NamedTuple):
    """An object that a BMC may have."""

    resource: api_resources.AnyResource
    namespace: str
    name: str


@dataclasses.dataclass(frozen=True)
class ObservedState:
    """The observed state of one BMC.

    :param live: all objects but Secrets; also foreign ones
    :param auth: the Secret that the operator generated or copied
    :param source: the Secret that the BMC refers to
    :param tls: that of the certificate that the operator issued
    :param state: the state Secret
    :param served_tls: that of the certificate that is served
    :param authority: None if the BMC needs none
    :param finalizer: whether the BMC has the operator's finalizer
    :param held: whether the BMC has a BareMetalHost, which needs it even while
        it is being deleted
    :param settled: whether the present spec was reconciled before, so that
        differences come from a new version of the operator
    """

    bmc_state: conditions.BmcState
    live: Live
    auth: secret_summary.Summary | None = None
    source: secret_summary.Summary | None = None
    tls: secret_summary.Summary | None = None
    state: secret_summary.Summary | None = None
    served_tls: secret_summary.Summary | None = None
    authority: Authority | None = None
    finalizer: bool = False
    held: bool = False
    settled: bool = False


@dataclasses.dataclass(frozen=True)
class Authority:
    """The certificate authority.

    :param bundle: PEM text of all certificates that clients may verify with
    """

    pair: pki.Pair
    bundle: str


def object_refs(bmc: spec.Bmc) -> list[Target]:
    """List the objects that a BMC may have, without Secrets."""
    base, here = naming.base(bmc.name), bmc.namespace
    access = naming.access(bmc.name, here, bmc.vm.namespace)
    second = naming.possible_vm_service(bmc)
    return [
        *([Target(bmc_resources.SERVICE, here, second)] if second else ()),
        Target(bmc_resources.DEPLOYMENT, here, base),
        Target(bmc_resources.SERVICE, here, base),
        Target(bmc_resources.ROUTE, here, naming.route(bmc)),
        Target(bmc_resources.ACCOUNT, here, base),
        Target(bmc_resources.POLICY, here, base),
        Target(bmc_resources.CONFIG_MAP, here, base),
        Target(bmc_resources.CONFIG_MAP, here, naming.authority(bmc.name)),
        Target(bmc_resources.BINDING, bmc.vm.namespace, access),
        Target(bmc_resources.ROLE, bmc.vm.namespace, access)]


def foreign_refs(bmc: spec.Bmc, live: Live) -> list[bmc_resources.ObjectRef]:
    """List the foreign objects that have a name which a BMC needs.

    A foreign Service of `naming.possible_vm_service` is none of them unless
    the BMC is to have that Service, nor is a foreign Route.

    :param live: as in `ObservedState`
    """
    unneeded: set[tuple[str, str, str | None]] = set()
    if not naming.vm_service(bmc):
        unneeded.add(('Service', bmc.namespace,
                      naming.possible_vm_service(bmc)))
    if not bmc.route:
        unneeded.add(('Route', bmc.namespace, naming.route(bmc)))
    return [ref for ref, obj in live.items()
            if ref not in unneeded and not naming.is_ours(bmc, obj)]


@dataclasses.dataclass(frozen=True)
class SecretRefs:
    """The Secrets of a BMC.

    :param auth: Secret that the operator generates or copies
    :param source: Secret that the BMC refers to for user name and password
    :param tls: Secret with the certificate that the operator issues
    :param user_tls: Secret that the BMC refers to for its certificate
    :param state: Secret with the state of the BMC
    """

    auth: spec.Reference
    source: spec.Reference | None
    tls: spec.Reference
    user_tls: spec.Reference | None
    state: spec.Reference

    def all(self) -> tuple[spec.Reference, ...]:
        """:returns: those that are not None, without duplicates"""
        return tuple(dict.fromkeys(filter(None, (
            self.auth, self.source, self.tls, self.user_tls, self.state))))


def secret_refs(bmc: spec.Bmc) -> SecretRefs:
    """List the Secrets that a BMC uses."""
    here = bmc.namespace
    user_tls = bmc.redfish.secret
    return SecretRefs(
        spec.Reference(here, naming.auth(bmc.name)), bmc.auth,
        spec.Reference(here, naming.tls(bmc.name)),
        spec.Reference(here, user_tls) if user_tls else None,
        spec.Reference(bmc.vm.namespace, state_secret.name(bmc.vm.name)))


def assemble(
        bmc: spec.Bmc, body: objects.VirtualMachineBMC, live: Live,
        vm: objects.Object | None,
        secrets: abc.Mapping[spec.Reference, secret_summary.Summary | None],
        authority: Authority | None, allowed: abc.Collection[str],
        default_image: str, refused: abc.Iterable[tuple[str, str]] = (),
        now: datetime.datetime | None = None, reserved: bool = False,
        digits: bool = True, route_problem: str | None = None,
        placed: placement.Placement = placement.Placement()) -> ObservedState:
    """Assemble the observed state.

    :param body: the BMC as the API has it
    :param live: as in `ObservedState`
    :param vm: the VM's metadata alone
    :param allowed: patterns of `permissions.image_allowed`
    :param default_image: image of BMCs whose spec has none
    :param refused: as in `conditions.BmcState`
    :param now: aware; default: the present
    :param reserved: whether another BMC needs the name of `naming.vm_service`
        for its own Service
    :param digits: whether names of Services may begin with a digit
    :param route_problem: as in `conditions.BmcState`
    :param placed: the same
    """
    refs = secret_refs(bmc)
    auth, tls = secrets.get(refs.auth), secrets.get(refs.tls)
    source = secrets.get(refs.source) if refs.source else None
    store = secrets.get(refs.state)
    foreign = [f'{kind} {name}' for kind, _, name in foreign_refs(bmc, live)]
    foreign += ['Secret ' + summary.obj['metadata']['name']
                for summary, needed in ((auth, _is_made(bmc)),
                                        (tls, _is_issued(bmc)))
                if needed and summary and not naming.is_ours(bmc, summary.obj)
                and not (summary is auth
                         and credentials.is_left_over(bmc, summary.obj))]
    if store and not _is_state(store):
        # The pod would read a foreign Secret, or one that another controller
        # writes, if it has another type.
        foreign.append('Secret ' + refs.state.name)
    secret = source if bmc.auth else _owned_secret(bmc, auth)
    user_tls = None
    if refs.user_tls and deployments.tls_secret(bmc):
        user_tls = secrets.get(refs.user_tls)
    served = user_tls if refs.user_tls else _owned_secret(bmc, tls)

    def owned(kind: str,
              name: str = naming.base(bmc.name)) -> objects.Json | None:
        return _owned_object(bmc, live.get(
            bmc_resources.ObjectRef(kind, bmc.namespace, name)))
    deployment = owned('Deployment')
    second = naming.vm_service(bmc)
    unnamable = naming.begins_with_digit(second) and not digits
    if second and (reserved or unnamable or f'Service {second}' in foreign):
        second = None
    bmc_state = conditions.BmcState(
        vm=vm, secret=secret.obj if secret else None,
        missing_keys=secret.missing_keys if secret else (),
        unusable_keys=secret.unusable_keys if secret else (),
        copied=_owned_secret(bmc, auth) is not None,
        account=owned('ServiceAccount'), deployment=deployment,
        service=owned('Service'), vm_service=second, unnamable=unnamable,
        route=owned('Route', naming.route(bmc)), route_problem=route_problem,
        certificate=bool(served and served.certificate),
        certificate_fault=user_tls.fault if user_tls else '',
        user_authority=user_tls.authority if user_tls else '',
        validity=pki.validity(user_tls.certificate)
        if user_tls and user_tls.certificate else None,
        now=now or datetime.datetime.now(datetime.UTC),
        foreign=tuple(foreign),
        image_allowed=bmc.image is None or permissions.image_allowed(
            bmc.image, allowed),
        pod_allowed=deployment is not None and all(
            permissions.image_allowed(
                image, (*allowed, permissions.repository(default_image)))
            for image in deployments.images(deployment)),
        refused=tuple(refused), placed=placed)
    metadata = body['metadata']
    return ObservedState(
        bmc_state, live, auth=auth, source=source, tls=tls, state=store,
        served_tls=served, authority=authority,
        finalizer=naming.FINALIZER in (metadata.get('finalizers') or ()),
        held=naming.HOST_FINALIZER in (metadata.get('finalizers') or ()),
        settled=(body.get('status') or {}).get(
            'observedGeneration') == bmc.generation)


def needs_authority(bmc: spec.Bmc) -> bool:
    """Tell whether the operator issues the certificate of a BMC."""
    return _is_issued(bmc)


def _is_state(secret: secret_summary.Summary) -> bool:
    """Tell whether a Secret is a BMC's state, created by operator or BMC."""
    return secret.type == secret_summary.TYPE and (
        secret.obj['metadata'].get('labels') or {}).get(
            naming.MANAGED_BY) in (naming.OPERATOR, state_secret.MANAGER)


def _is_made(bmc: spec.Bmc) -> bool:
    return bmc.auth is None or desired_state.copies(bmc)


def _is_issued(bmc: spec.Bmc) -> bool:
    return deployments.tls_secret(bmc) == naming.tls(bmc.name)


def _owned_secret(bmc: spec.Bmc, secret: secret_summary.Summary | None
                  ) -> secret_summary.Summary | None:
    return secret if secret and naming.is_ours(bmc, secret.obj) else None


def _owned_object(bmc: spec.Bmc,
                  obj: objects.Json | None) -> objects.Json | None:
    return obj if obj and naming.is_ours(bmc, obj) else None
