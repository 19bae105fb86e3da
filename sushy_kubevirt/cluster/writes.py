# SPDX-License-Identifier: Apache-2.0
"""The writes of a plan's changes, by server-side apply.

Each is repeated after a temporary failure, and may have been done by an
earlier run. Objects of others are never changed: an object is created only if
there is none of its name, and changed or deleted only with its uid.
"""

from __future__ import annotations

import dataclasses
import threading

from sushy_kubevirt.cluster.objects import bmc
from sushy_kubevirt.cluster.objects import networks
from sushy_kubevirt.cluster.objects import stamp
from sushy_kubevirt.cluster.objects import vm
from sushy_kubevirt.cluster.plan import Action
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry

#: Deletes what an object owns first, so that its volumes are gone with it:
#: KubeVirt would take over a DataVolume that has not been deleted yet.
_FOREGROUND = 'Foreground'


class Writer:
    """Writes changes of a plan. Thread-safe.

    :param client: a `client.Client`
    :param plan: the `plan.Plan`
    :param options: `options.Options` with the deadline of a write
    """

    def __init__(self, client, plan, options) -> None:
        self._client = client
        self._plan = plan
        self._options = options

    def write(self, change):
        """Carry out a change; `Action.RECREATE` creates only.

        :param change: a `plan.Change`
        :returns: the object, or its metadata, after the change; None if it
            is deleted
        :raises: `errors.MachineError`; `problems.NameTaken`;
            `problems.ChangedMeanwhile`
        """
        match change.action:
            case Action.CREATE | Action.RECREATE:
                return self._repeat(lambda: self._create(change))
            case Action.CHANGE:
                return self._repeat(lambda: self._change(change), change)
            case Action.DELETE:
                return self.delete(change)
            case Action.JOIN:
                return self._repeat(lambda: self._use(change, ''))
            case Action.LEAVE:
                return self._leave(change)

    def delete(self, change):
        """Delete an object, if it is still the one that was planned.

        :param change: a `plan.Change`
        """
        metadata = change.live['metadata']
        preconditions = {'uid': metadata['uid']}
        if networks.is_shared(change.live):
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
            if change.action != Action.RECREATE:
                raise

    def _leave(self, change) -> None:
        live = self._repeat(lambda: self._use(change, None))
        if networks.users(live):
            return
        # The others have left since the plan was made.
        try:
            self.delete(dataclasses.replace(change, live=live))
        except problems.ChangedMeanwhile:
            pass    # Another cluster uses it now.

    def _create(self, change):
        resource, namespace = change.resource, self._plan.namespace
        body = _filled(change)
        try:
            return self._create_vm(body) if resource == api_resources.VM \
                else self._client.create(resource, namespace, body, named=True)
        except errors.Conflict as e:
            try:
                live = self._client.get(resource, namespace, change.name,
                                        metadata_only=True)
            except errors.ObjectNotFound:
                raise e from None
            if stamp.is_leaving(live):
                raise
            if (stamp.cluster_of(live) != stamp.cluster_of(change.wanted.body)
                    or stamp.hash_of(live) != change.wanted.hash):
                raise problems.NameTaken(
                    resource.kind, namespace, change.name) from e
            # An earlier attempt has created it, and its answer was lost; or
            # another cluster has created a definition that both share.
            if networks.is_shared(live):
                self._use(change, '')
            return live

    def _create_vm(self, body):
        create, namespace = self._client.create, self._plan.namespace
        try:
            return create(api_resources.VM, namespace, body, named=True)
        except errors.Rejected:
            without = vm.without_drive(body)
            if without is None:
                raise
            return create(api_resources.VM, namespace, without, named=True)

    def _change(self, change):
        metadata = change.live['metadata']
        body = _filled(change)
        body = {**body, 'metadata': {**body['metadata'],
                                     'uid': metadata['uid']}}
        if networks.is_shared(change.live):
            # Another cluster may have become a user of it.
            body['metadata']['resourceVersion'] = metadata['resourceVersion']
        return self._client.apply(change.resource, self._plan.namespace,
                                  change.name, body)

    def _use(self, change, value):
        # A merge patch: by server-side apply, the clusters that share the
        # definition would remove each other's annotations, as all have the
        # same field manager.
        return self._client.patch(
            change.resource, self._plan.namespace, change.name,
            {'metadata': {'annotations': {
                networks.USER + self._plan.cluster: value}}})

    def _repeat(self, step, change=None):
        """Repeat a step after temporary failures.

        :param change: a `plan.Change` of an object that has to be the one
            that was planned, or None
        """
        def once():
            try:
                return step()
            except errors.Conflict as e:
                if change and not self._is_as_planned(change):
                    raise problems.ChangedMeanwhile(str(e)) from e
                raise
        return retry.run(once, self._options, threading.Event())

    def _is_as_planned(self, change):
        live = self._client.get(change.resource, self._plan.namespace,
                                change.name, metadata_only=True)
        keys = ['uid', *(['resourceVersion']
                         if networks.is_shared(change.live) else [])]
        return all(live['metadata'][key] == change.live['metadata'][key]
                   for key in keys)


def _filled(change):
    body = change.wanted.body
    if change.resource == api_resources.SECRET:
        return bmc.with_password(body)
    return body
