# SPDX-License-Identifier: Apache-2.0
"""Observed state of one BMC, assembled from the cache without requests."""

from __future__ import annotations

import dataclasses
import datetime

from sushy_kubevirt.bmc import state_secret
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


@dataclasses.dataclass(frozen=True)
class ObservedState:
    """The observed state of one BMC.

    :param bmc_state: `conditions.BmcState`
    :param live: dict of a (kind, namespace, name) and the object, for all
        but Secrets; also foreign objects
    :param auth: `secret_summary.Summary` of the Secret that the operator
        generated or copied, or None
    :param source: the same of the Secret that the BMC refers to
    :param tls: the same of the certificate that the operator issued
    :param state: the same of the state Secret
    :param served_tls: the same of the certificate that is served
    :param authority: the `Authority`; None if the BMC needs none
    :param finalizer: whether the BMC has the operator's finalizer
    :param held: whether the BMC has a BareMetalHost, which needs it even while
        it is being deleted
    :param settled: whether the present spec was reconciled before, so that
        differences come from a new version of the operator
    """

    bmc_state: conditions.BmcState
    live: dict
    auth: secret_summary.Summary | None = None
    source: secret_summary.Summary | None = None
    tls: secret_summary.Summary | None = None
    state: secret_summary.Summary | None = None
    served_tls: secret_summary.Summary | None = None
    authority: object = None
    finalizer: bool = False
    held: bool = False
    settled: bool = False


@dataclasses.dataclass(frozen=True)
class Authority:
    """The certificate authority.

    :param pair: `pki.Pair`
    :param bundle: PEM text of all certificates that clients may verify with
    """

    pair: pki.Pair
    bundle: str


def object_refs(bmc):
    """List the references of the objects that a BMC may have, without Secrets.

    :param bmc: a `spec.Bmc`
    :returns: list of (resource, namespace, name)
    """
    base, here = naming.base(bmc.name), bmc.namespace
    access = naming.access(bmc.name, here, bmc.vm.namespace)
    second = naming.possible_vm_service(bmc)
    return [
        *([(bmc_resources.SERVICE, here, second)] if second else ()),
        (bmc_resources.DEPLOYMENT, here, base),
        (bmc_resources.SERVICE, here, base),
        (bmc_resources.ROUTE, here, naming.route(bmc)),
        (bmc_resources.ACCOUNT, here, base),
        (bmc_resources.POLICY, here, base),
        (bmc_resources.CONFIG_MAP, here, base),
        (bmc_resources.CONFIG_MAP, here, naming.authority(bmc.name)),
        (bmc_resources.BINDING, bmc.vm.namespace, access),
        (bmc_resources.ROLE, bmc.vm.namespace, access)]


def foreign_refs(bmc, live):
    """List the foreign objects that have a name which a BMC needs.

    A foreign Service of `naming.possible_vm_service` is none of them unless
    the BMC is to have that Service, nor is a foreign Route.

    :param bmc: a `spec.Bmc`
    :param live: as in `ObservedState`
    :returns: list of (kind, namespace, name)
    """
    unneeded = set()
    if not naming.vm_service(bmc):
        unneeded.add(('Service', bmc.namespace,
                      naming.possible_vm_service(bmc)))
    if not bmc.route:
        unneeded.add(('Route', bmc.namespace, naming.route(bmc)))
    return [ref for ref, obj in live.items()
            if ref not in unneeded and not naming.is_ours(bmc, obj)]


@dataclasses.dataclass(frozen=True)
class SecretRefs:
    """The Secrets of a BMC, each a `spec.Reference` or None.

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

    def all(self):
        """:returns: tuple of those that are not None, each once"""
        return tuple(dict.fromkeys(filter(None, (
            self.auth, self.source, self.tls, self.user_tls, self.state))))


def secret_refs(bmc):
    """List the Secrets that a BMC uses.

    :param bmc: a `spec.Bmc`
    :returns: `SecretRefs`
    """
    here = bmc.namespace
    user_tls = bmc.redfish.secret
    return SecretRefs(
        spec.Reference(here, naming.auth(bmc.name)), bmc.auth,
        spec.Reference(here, naming.tls(bmc.name)),
        spec.Reference(here, user_tls) if user_tls else None,
        spec.Reference(bmc.vm.namespace, state_secret.name(bmc.vm.name)))


def assemble(bmc, body, live, vm, secrets, authority, allowed, default_image,
             refused=(), now=None, reserved: bool = False, digits: bool = True,
             route_problem=None, placed=placement.Placement()):
    """Assemble the observed state.

    :param bmc: a `spec.Bmc`
    :param body: dict, the BMC as the API has it
    :param live: as in `ObservedState`
    :param vm: dict with the VM's metadata, or None
    :param secrets: dict of `spec.Reference` and `secret_summary.Summary` or
        None
    :param authority: `Authority` or None
    :param allowed: patterns of `permissions.image_allowed`
    :param default_image: image of BMCs whose spec has none
    :param refused: as in `conditions.BmcState`
    :param now: aware `datetime.datetime`; default: the present
    :param reserved: whether another BMC needs the name of `naming.vm_service`
        for its own Service
    :param digits: whether names of Services may begin with a digit
    :param route_problem: as in `conditions.BmcState`
    :param placed: the same
    :returns: `ObservedState`
    """
    refs = secret_refs(bmc)
    auth, tls = secrets.get(refs.auth), secrets.get(refs.tls)
    source, store = secrets.get(refs.source), secrets.get(refs.state)
    foreign = [f'{kind} {name}' for kind, _, name in foreign_refs(bmc, live)]
    foreign += ['Secret ' + one.obj['metadata']['name']
                for one, needed in ((auth, _is_made(bmc)),
                                    (tls, _is_issued(bmc)))
                if needed and one and not naming.is_ours(bmc, one.obj)
                and not (one is auth
                         and credentials.is_left_over(bmc, one.obj))]
    if store and not _is_state(store):
        # The pod would read a foreign Secret, or one that another controller
        # writes, if it has another type.
        foreign.append('Secret ' + refs.state.name)
    secret = source if bmc.auth else _owned_secret(bmc, auth)
    user_tls = None
    if deployments.tls_secret(bmc):
        user_tls = secrets.get(refs.user_tls)
    served = user_tls if refs.user_tls else _owned_secret(bmc, tls)

    def owned(kind, name=naming.base(bmc.name)):
        return _owned_object(bmc, live.get((kind, bmc.namespace, name)))
    deployment = owned('Deployment')
    second = naming.vm_service(bmc)
    unnamable = naming.begins_with_digit(second) and not digits
    if second and (reserved or unnamable or f'Service {second}' in foreign):
        second = None
    bmc_state = conditions.BmcState(
        vm=vm, secret=secret and secret.obj,
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


def needs_authority(bmc):
    """Tell whether the operator issues the certificate of a BMC.

    :param bmc: a `spec.Bmc`
    """
    return _is_issued(bmc)


def _is_state(secret):
    """Tell whether a Secret is a BMC's state, created by operator or BMC."""
    return secret.type == secret_summary.TYPE and (
        secret.obj['metadata'].get('labels') or {}).get(
            naming.MANAGED_BY) in (naming.OPERATOR, state_secret.MANAGER)


def _is_made(bmc):
    return bmc.auth is None or desired_state.copies(bmc)


def _is_issued(bmc):
    return deployments.tls_secret(bmc) == naming.tls(bmc.name)


def _owned_secret(bmc, secret):
    return secret if secret and naming.is_ours(bmc, secret.obj) else None


def _owned_object(bmc, obj):
    return obj if obj and naming.is_ours(bmc, obj) else None
