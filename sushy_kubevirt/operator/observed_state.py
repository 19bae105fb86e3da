# SPDX-License-Identifier: Apache-2.0
"""Observed state of one BMC, assembled from the cache without requests."""

import dataclasses
import datetime

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import desired_state
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator import spec
from sushy_kubevirt.redfish.services import state_secret


@dataclasses.dataclass(frozen=True)
class ObservedState:
    """The observed state of one BMC.

    :param world: `conditions.World`
    :param live: dict of a (kind, namespace, name) and the object, for all
        but Secrets; also foreign objects
    :param auth: `secret_summary.Summary` of the Secret that the operator
        generated or copied, or None
    :param source: the same of the Secret that the BMC refers to
    :param tls: the same of the certificate that the operator issued
    :param state: the same of the state Secret
    :param authority: the `Authority`; None if the BMC needs none
    :param finalizer: whether the BMC has the operator's finalizer
    :param settled: whether the present spec was reconciled before, so that
        differences come from a new version of the operator
    """

    world: conditions.World
    live: dict
    auth: secret_summary.Summary | None = None
    source: secret_summary.Summary | None = None
    tls: secret_summary.Summary | None = None
    state: secret_summary.Summary | None = None
    authority: object = None
    finalizer: bool = False
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
    """List the references of a BMC's objects, without Secrets.

    :param bmc: a `spec.Bmc`
    :returns: list of (resource, namespace, name)
    """
    base, here = naming.base(bmc.name), bmc.namespace
    access = naming.access(bmc.name, here, bmc.vm.namespace)
    return [
        (bmc_resources.DEPLOYMENT, here, base),
        (bmc_resources.SERVICE, here, base),
        (bmc_resources.ACCOUNT, here, base),
        (bmc_resources.POLICY, here, base),
        (bmc_resources.CONFIG_MAP, here, base),
        (bmc_resources.CONFIG_MAP, here, naming.authority(bmc.name)),
        (bmc_resources.BINDING, bmc.vm.namespace, access),
        (bmc_resources.ROLE, bmc.vm.namespace, access)]


@dataclasses.dataclass(frozen=True)
class SecretRefs:
    """The Secrets of a BMC, each a `spec.Reference` or None.

    :param auth: Secret that the operator generates or copies
    :param source: Secret that the BMC refers to for user name and password
    :param tls: Secret with the certificate that the operator issues
    :param given: Secret that the BMC refers to for its certificate
    :param state: Secret with the state of the BMC
    """

    auth: spec.Reference
    source: spec.Reference | None
    tls: spec.Reference
    given: spec.Reference | None
    state: spec.Reference

    def all(self):
        """:returns: tuple of those that are not None, each once"""
        return tuple(dict.fromkeys(filter(None, (
            self.auth, self.source, self.tls, self.given, self.state))))


def secret_refs(bmc):
    """List the Secrets that a BMC uses.

    :param bmc: a `spec.Bmc`
    :returns: `SecretRefs`
    """
    here = bmc.namespace
    given = bmc.redfish.secret
    return SecretRefs(
        spec.Reference(here, naming.auth(bmc.name)), bmc.auth,
        spec.Reference(here, naming.tls(bmc.name)),
        spec.Reference(here, given) if given else None,
        spec.Reference(bmc.vm.namespace, bmc.vm.name + state_secret.ENDING))


def assemble(bmc, body, live, vm, seen, issuer, allowed, default_image,
             refused=(), now=None):
    """Assemble the observed state.

    :param bmc: a `spec.Bmc`
    :param body: dict, the BMC as the API has it
    :param live: as in `ObservedState`
    :param vm: dict with the VM's metadata, or None
    :param seen: dict of `spec.Reference` and `secret_summary.Summary` or None
    :param issuer: `Authority` or None
    :param allowed: patterns of `permissions.image_allowed`
    :param default_image: image of BMCs whose spec has none
    :param refused: as in `conditions.World`
    :param now: aware `datetime.datetime`; default: the present
    :returns: `ObservedState`
    """
    refs = secret_refs(bmc)
    auth, tls = seen.get(refs.auth), seen.get(refs.tls)
    source, store = seen.get(refs.source), seen.get(refs.state)
    taken = [f'{kind} {name}' for (kind, _, name), obj in live.items()
             if not naming.is_ours(bmc, obj)]
    taken += ['Secret ' + one.obj['metadata']['name']
              for one, needed in ((auth, _is_made(bmc)),
                                  (tls, _is_issued(bmc)))
              if needed and one and not naming.is_ours(bmc, one.obj)]
    if store and not _is_state(store):
        # The pod would read a foreign Secret, or one that another controller
        # writes, if it has another type.
        taken.append('Secret ' + refs.state.name)
    secret = source if bmc.auth else _ours(bmc, auth)
    given = seen.get(refs.given) if deployments.tls_secret(bmc) else None
    served = given if refs.given else _ours(bmc, tls)

    def own(kind):
        return _own(bmc, live.get((kind, bmc.namespace,
                                   naming.base(bmc.name))))
    deployment = own('Deployment')
    world = conditions.World(
        vm=vm, secret=secret and secret.obj,
        secret_lacks=secret.lacks if secret else (),
        secret_unfit=secret.unfit if secret else (),
        copied=_ours(bmc, auth) is not None,
        account=own('ServiceAccount'), deployment=deployment,
        service=own('Service'),
        certificate=bool(served and served.certificate),
        certificate_fault=given.fault if given else '',
        validity=pki.validity(given.certificate)
        if given and given.certificate else None,
        now=now or datetime.datetime.now(datetime.UTC),
        taken=tuple(taken),
        image_allowed=bmc.image is None or permissions.image_allowed(
            bmc.image, allowed),
        pod_allowed=deployment is not None and all(
            permissions.image_allowed(
                image, (*allowed, permissions.repository(default_image)))
            for image in deployments.images(deployment)),
        refused=tuple(refused))
    metadata = body['metadata']
    return ObservedState(
        world, live, auth=auth, source=source, tls=tls, state=store,
        authority=issuer,
        finalizer=naming.FINALIZER in (metadata.get('finalizers') or ()),
        settled=(body.get('status') or {}).get(
            'observedGeneration') == bmc.generation)


def needs_authority(bmc):
    """Tell whether the operator issues the certificate of a BMC.

    :param bmc: a `spec.Bmc`
    """
    return _is_issued(bmc)


def _is_state(seen):
    """Tell whether a Secret is a BMC's state, created by operator or BMC."""
    return seen.type == secret_summary.TYPE and (
        seen.obj['metadata'].get('labels') or {}).get(
            naming.MANAGED_BY) in (naming.OPERATOR, state_secret.MANAGER)


def _is_made(bmc):
    return bmc.auth is None or desired_state.copies(bmc)


def _is_issued(bmc):
    return deployments.tls_secret(bmc) == naming.tls(bmc.name)


def _ours(bmc, seen):
    return seen if seen and naming.is_ours(bmc, seen.obj) else None


def _own(bmc, obj):
    return obj if obj and naming.is_ours(bmc, obj) else None
