# SPDX-License-Identifier: Apache-2.0
"""What to do next for a BMC: a pure function of what is there.

Nothing is remembered of what was done. An operator that was killed between
any two steps looks again, and what is left is its plan.
"""

import dataclasses

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import credentials
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import desired_state
from sushy_kubevirt.operator import drift
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import observed_state
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import spec


@dataclasses.dataclass(frozen=True)
class Create:
    """Make an object; if there is one of that name, look at it.

    :param body: dict
    """

    body: dict


@dataclasses.dataclass(frozen=True)
class Apply:
    """Change an object by server-side apply.

    :param body: dict
    :param uid: of the object that is meant
    :param upgrade: whether the reason is the operator's own change, which
        may have to wait for its turn
    """

    body: dict
    uid: str
    upgrade: bool = False


@dataclasses.dataclass(frozen=True)
class Replace:
    """Put the whole of an object in the place of what is there, because
    others added to it what apply does not take away, or cannot be with it.

    :param body: dict
    :param uid: of the object that is meant
    """

    body: dict
    uid: str


@dataclasses.dataclass(frozen=True)
class Delete:
    """Delete an object.

    :param resource: a `api_resources.Resource`
    :param at: `spec.Reference`
    :param uid: of the object that is meant
    """

    resource: api_resources.Resource
    at: spec.Reference
    uid: str


@dataclasses.dataclass(frozen=True)
class Generate:
    """Make a user name and a password, or what lacks of them.

    :param uid: of the Secret that lacks them; None if there is none
    :param lacks: keys
    """

    uid: str | None = None
    lacks: tuple = (credentials.USERNAME, credentials.PASSWORD)


@dataclasses.dataclass(frozen=True)
class Copy:
    """Copy user name and password from the Secret of another namespace.

    :param uid: of the copy that is there; None if there is none
    """

    uid: str | None = None


@dataclasses.dataclass(frozen=True)
class Issue:
    """Issue a certificate.

    :param names: host names and addresses
    :param uid: of the Secret that has another one; None if there is none
    """

    names: tuple
    uid: str | None = None


@dataclasses.dataclass(frozen=True)
class Settle:
    """Take from a Deployment the mark of an upgrade that is over.

    :param uid: of the Deployment
    """

    uid: str


@dataclasses.dataclass(frozen=True)
class Finalizer:
    """Give the BMC our finalizer, or take it away.

    :param on: whether it is to be there
    """

    on: bool


def steps(bmc, seen, defaults, tried=None, now=None):
    """The steps to take, in their order.

    After them there may be others; who has taken these asks again.

    :param bmc: a `spec.Bmc`
    :param seen: `observed_state.ObservedState`
    :param defaults: `deployments.Defaults`
    :param tried: dict of a (kind, namespace, name) and (step's class,
        `attempt`), what did not help
    :param now: aware `datetime.datetime`; the present when left out
    :returns: list; empty if all is as it is to be
    """
    if bmc.deleting:
        return _cleanup_steps(bmc, seen)
    found = []
    if bmc.vm.namespace != bmc.namespace and not seen.finalizer:
        found.append(Finalizer(True))
    objects = desired_state.objects(bmc, seen.world, defaults)
    out = desired_state.withdrawn(bmc, seen.world)
    if seen.authority and not out:
        objects.insert(1, endpoints.authority(bmc, seen.authority.bundle))
    first, *others = objects
    found += _towards(bmc, first, seen, tried)
    found += _auth(bmc, seen, out) + _tls(bmc, seen, out, now)
    for obj in others:
        found += _towards(bmc, obj, seen, tried)
    return found + _settle(seen) + _away(bmc, seen, objects, out)


def attempt(wanted, live):
    """What an attempt to put something right was about.

    :param wanted: dict, an object that is to be
    :param live: dict, as the API has it
    :returns: tuple that is another one when something else is asked for, or
        somebody changes the object; not when its status changes
    """
    metadata = live['metadata']
    return (drift.digest(unmarked(wanted)),
            metadata.get('generation') or metadata.get('resourceVersion'))


def marked(obj):
    """An object with the digest of what is asked for.

    :param obj: dict
    """
    metadata = obj['metadata']
    return {**obj, 'metadata': {**metadata, 'annotations': {
        **metadata.get('annotations', {}),
        naming.APPLIED: drift.digest(obj)}}}


def unmarked(obj):
    """An object without what `marked` and an upgrade put into it.

    :param obj: dict
    """
    metadata = dict(obj['metadata'])
    annotations = {
        name: value for name, value in metadata.pop('annotations', {}).items()
        if name not in (naming.APPLIED, naming.UPGRADING)}
    if annotations:
        metadata['annotations'] = annotations
    return {**obj, 'metadata': metadata}


def _cleanup_steps(bmc, seen):
    if not seen.finalizer:
        return []
    left = [step for step in _away(bmc, seen, [], True)
            if step.at.namespace != bmc.namespace]
    return left or [Finalizer(False)]


def _towards(bmc, obj, seen, tried):
    metadata = obj['metadata']
    ref = obj['kind'], metadata['namespace'], metadata['name']
    if obj['kind'] == 'Secret':
        return [] if seen.state else [Create(obj)]
    live = seen.live.get(ref)
    if live is None:
        return [Create(marked(obj))]
    uid = live['metadata'].get('uid')
    if (not naming.is_ours(bmc, live)
            or 'deletionTimestamp' in live['metadata']):
        return []
    if drift.must_recreate(obj, live) or (
            obj['kind'] == 'Service'
            and network.has_another_class(obj, live)):
        return [Delete(bmc_resources.of(obj), _at(live), uid)]
    other = drift.asked(live) != drift.digest(obj)
    if not other and not drift.differs(obj, live):
        return []
    last = (tried or {}).get(ref)
    if last == (Apply, *attempt(obj, live)):
        return [Replace(marked(obj), uid)]
    if last == (Replace, *attempt(obj, live)):
        # The cluster will have it so.
        return []
    return [Apply(marked(obj), uid, other and seen.settled
                  and _is_rolled_out(bmc, obj, seen.world.deployment))]


def _is_rolled_out(bmc, obj, live):
    """Whether a change of an object stops the pod, which works or did so
    until the upgrade before.

    Of one that does not work, for whichever reason, nobody is bereft; if it
    were to wait for its turn, it would keep that for ever, from all others.

    :param live: dict, the Deployment as it is, or None
    """
    if live is None or not (deployments.is_ready(live) or naming.UPGRADING in (
            live['metadata'].get('annotations') or {})):
        return False
    if obj['kind'] == 'Deployment':
        # One without an account does not work.
        return deployments.account(live) in (None, deployments.account(obj))
    return (
        obj['kind'] == 'ConfigMap'
        and obj['metadata']['name'] == naming.base(bmc.name))


def _auth(bmc, seen, out):
    if desired_state.copies(bmc):
        if out or seen.source is None or seen.source.lacks:
            return []
        if seen.auth is None:
            return [Copy()]
        if (naming.is_ours(bmc, seen.auth.obj)
                and seen.auth.digest != seen.source.digest):
            return [Copy(_uid(seen.auth))]
        return []
    if bmc.auth is not None:
        return []
    if seen.auth is None:
        return [Generate()]
    if naming.is_ours(bmc, seen.auth.obj) and seen.auth.lacks:
        return [Generate(_uid(seen.auth), seen.auth.lacks)]
    return []


def _tls(bmc, seen, out, now):
    service = seen.world.service
    if (seen.authority is None or out or service is None
            or endpoints.cluster_ip(service) is None):
        return []
    names = endpoints.names(bmc, service)
    if seen.tls is None:
        return [Issue(names)]
    if naming.is_ours(bmc, seen.tls.obj) and (
            seen.tls.certificate is None or pki.due(
                seen.tls.certificate, names, seen.authority.pair, now)):
        return [Issue(names, _uid(seen.tls))]
    return []


def _settle(seen):
    live = seen.world.deployment
    if live is None or naming.UPGRADING not in (
            live['metadata'].get('annotations') or {}):
        return []
    return [Settle(live['metadata']['uid'])] if deployments.is_ready(
        live) else []


def _away(bmc, seen, objects, out):
    """What is ours and not to be there."""
    stay = {(obj['kind'], obj['metadata']['namespace'],
             obj['metadata']['name']) for obj in objects}
    base = naming.base(bmc.name)
    held = not out and desired_state.held(bmc, seen.world)
    if held:
        stay |= {('Deployment', bmc.namespace, base)} | {
            ('ConfigMap', bmc.namespace, name)
            for name in (base, naming.authority(bmc.name))}
    found = []
    for resource, namespace, name in observed_state.objects(bmc):
        live = seen.live.get((resource.kind, namespace, name))
        if (live is not None and (resource.kind, namespace, name) not in stay
                and naming.is_ours(bmc, live)
                and 'deletionTimestamp' not in live['metadata']):
            found.append(Delete(resource, spec.Reference(namespace, name),
                                live['metadata'].get('uid')))
    spare = []
    if held:
        # The pod that there is may mount them.
        return found
    if bmc.auth is not None and (out or not desired_state.copies(bmc)):
        spare.append(seen.auth)
    if seen.authority is None:
        spare.append(seen.tls)
    return found + [
        Delete(bmc_resources.SECRET, _at(one.obj), _uid(one)) for one in spare
        if one is not None and naming.is_ours(bmc, one.obj)
        and 'deletionTimestamp' not in one.obj['metadata']]


def _at(obj):
    metadata = obj['metadata']
    return spec.Reference(metadata['namespace'], metadata['name'])


def _uid(seen):
    return seen.obj['metadata'].get('uid')
