# SPDX-License-Identifier: Apache-2.0
"""The writes of a plan's changes, by server-side apply.

Each is repeated after a temporary failure, and may have been done by an
earlier run. Objects of others are never changed: an object is created only if
there is none of its name, and changed or deleted only with its uid.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import threading
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.objects import bmc
from sushy_kubevirt.cluster.objects import networks
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster.objects import vm
from sushy_kubevirt.cluster import plan
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry
from sushy_kubevirt.kube import stored_names

if typing.TYPE_CHECKING:
    from sushy_kubevirt.cluster.objects import kinds
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import objects

#: Deletes what an object owns first, so that its volumes are gone with it:
#: KubeVirt would take over a DataVolume that has not been deleted yet.
_FOREGROUND = 'Foreground'


class Writer:
    """Writes changes of a plan. Thread-safe."""

    def __init__(self, client: client.Client, plan: plan.Plan) -> None:
        self._client = client
        self._plan = plan

    def write(self, change: plan.Change) -> objects.Json | None:
        """Carry out a change; `plan.Action.RECREATE` creates only.

        :returns: the object, or its metadata, after the change; None if it
            is deleted
        :raises: `errors.MachineError`; `problems.NameTaken`;
            `problems.ChangedMeanwhile`
        """
        match change.action:
            case plan.Action.CREATE | plan.Action.RECREATE:
                return self._repeat(lambda: self._create(change))
            case plan.Action.CHANGE:
                return self._repeat(lambda: self._change(change), change)
            case plan.Action.JOIN:
                return self._repeat(lambda: self._use(change, ''))
            case plan.Action.DELETE:
                self.delete(change)
            case plan.Action.LEAVE:
                self._leave(change)
        return None

    def delete(self, change: plan.Change) -> None:
        """Delete an object, if it is still the one that was planned."""
        metadata = change.metadata
        preconditions = {'uid': metadata['uid']}
        if _is_shared(change):
            # Another cluster may have become a user of it.
            preconditions['resourceVersion'] = metadata['resourceVersion']
        try:
            self._repeat(lambda: self._client.delete(
                change.resource, self._plan.namespace, change.name,
                {'propagationPolicy': _FOREGROUND,
                 'preconditions': preconditions}), change)
        except errors.ObjectNotFound:
            pass    # It is gone already.
        except problems.ChangedMeanwhile:
            # Another run may have recreated it, which `_create` finds out.
            if change.action != plan.Action.RECREATE:
                raise

    def _leave(self, change: plan.Change) -> None:
        live = self._repeat(lambda: self._use(change, None))
        if networks.users(live):
            return
        # The others have left since the plan was made.
        try:
            self.delete(dataclasses.replace(change, live=live))
        except problems.ChangedMeanwhile:
            pass    # Another cluster uses it now.

    def _create(self, change: plan.Change) -> objects.Json:
        resource, namespace = change.resource, self._plan.namespace
        body = _filled(change)
        try:
            return self._create_vm(resource, body) \
                if resource == api_resources.VM \
                else self._client.create(resource, namespace, body, named=True)
        except errors.Conflict as e:
            try:
                live = self._client.get(resource, namespace, change.name,
                                        metadata_only=True)
            except errors.ObjectNotFound:
                raise e from None
            if stamp.is_leaving(live):
                raise
            declared = change.declared
            if (stamp.cluster_of(live) != stamp.cluster_of(declared.body)
                    or stamp.hash_of(live) != declared.hash):
                raise problems.NameTaken(
                    resource.kind, namespace, change.name) from e
            # An earlier attempt has created it, and its answer was lost; or
            # another cluster has created a definition that both share.
            if networks.is_shared(live):
                self._use(change, '')
            return live

    def _create_vm(self, resource: kinds.AnyResource,
                   body: objects.Json) -> objects.Json:
        create, namespace = self._client.create, self._plan.namespace
        try:
            return create(resource, namespace, body, named=True)
        except errors.Rejected:
            without = vm.without_drive(body)
            if without is None:
                raise
            return create(resource, namespace, without, named=True)

    def _change(self, change: plan.Change) -> objects.Json:
        metadata = change.metadata
        body = _filled(change)
        body = {**body, 'metadata': {**body['metadata'],
                                     'uid': metadata['uid']}}
        if _is_shared(change):
            # Another cluster may have become a user of it.
            body['metadata']['resourceVersion'] = metadata['resourceVersion']
        return self._client.apply(change.resource, self._plan.namespace,
                                  change.name, body)

    def _use(self, change: plan.Change, value: str | None) -> objects.Json:
        # A merge patch: by server-side apply, the clusters that share the
        # definition would remove each other's annotations, as all have the
        # same field manager.
        return self._client.patch(
            change.resource, self._plan.namespace, change.name,
            {'metadata': {'annotations': {
                stored_names.USER + self._plan.cluster: value}}})

    def _repeat(self, step: abc.Callable[[], objects.Json],
                change: plan.Change | None = None) -> objects.Json:
        """Repeat a step after temporary failures.

        :param change: of an object that has to be the one that was planned;
            None for any
        """
        def once() -> objects.Json:
            try:
                return step()
            except errors.Conflict as e:
                if change and not self._is_as_planned(change):
                    raise problems.ChangedMeanwhile(str(e)) from e
                raise
        return retry.run(once, api_server.OPTIONS.write_deadline,
                         threading.Event())

    def _is_as_planned(self, change: plan.Change) -> bool:
        metadata: objects.ObjectMeta = self._client.get(
            change.resource, self._plan.namespace, change.name,
            metadata_only=True)['metadata']
        return metadata['uid'] == change.metadata['uid'] and (
            not _is_shared(change) or metadata['resourceVersion']
            == change.metadata['resourceVersion'])


def _is_shared(change: plan.Change) -> bool:
    return change.live is not None and networks.is_shared(change.live)


def _filled(change: plan.Change) -> objects.Json:
    body = change.declared.body
    if change.resource == api_resources.SECRET:
        return bmc.with_password(body)
    return body
