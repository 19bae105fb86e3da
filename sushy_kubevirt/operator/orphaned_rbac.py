# SPDX-License-Identifier: Apache-2.0
"""Deletes orphaned Roles and RoleBindings of BMCs of other namespaces.

Owner references do not work across namespaces; a finalizer keeps such a BMC
until its Role and RoleBinding are deleted. A user who may change the BMC can
remove the finalizer; the account of its pod would then keep the rights, even
after the owner of the VM has withdrawn the permission.
"""

from __future__ import annotations

from collections import abc
import logging
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import workqueue

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import api
    from sushy_kubevirt.operator import store

LOG = logging.getLogger(__name__)

#: Order of deletion: without the RoleBinding the Role has no effect.
KINDS = (bmc_resources.BINDING, bmc_resources.ROLE)


class OrphanedRbac:
    """Finds and deletes orphaned Roles and RoleBindings."""

    def __init__(self, api: api.Api, store: store.Store) -> None:
        self._api = api
        self._store = store
        self._queue = workqueue.Queue(self._delete, 1)

    def enqueue_all(self) -> None:
        """Check all Roles and RoleBindings. The first call, which starts the
        work, is made when all BMCs are cached."""
        if not self._queue.started:
            self._queue.start()
        for resource in KINDS:
            for key in self._store.kind(resource).keys():
                self.enqueue(*key)

    def enqueue(self, namespace: str, name: str) -> None:
        """Check a Role and its RoleBinding, which have the same name."""
        if self._queue.started and any(self._orphans(namespace, name)):
            self._queue.add(objects.ObjectKey(namespace, name))

    async def close(self) -> None:
        """End the work."""
        await self._queue.close(0)

    def _orphans(
            self, namespace: str, name: str) -> abc.Iterator[
                tuple[api_resources.Resource[objects.Json], objects.Json]]:
        for resource in KINDS:
            if self._store.users_of(resource, namespace, name):
                continue
            obj = self._store.get(resource, namespace, name)
            if (obj is not None and self._is_of_elsewhere(obj)
                    and 'deletionTimestamp' not in obj['metadata']):
                yield resource, obj

    def _is_of_elsewhere(self, obj: objects.Json) -> bool:
        """Tell whether an object was created for a BMC of another namespace,
        one whose BMCs are cached."""
        metadata = obj['metadata']
        namespace = (metadata.get('labels') or {}).get(
            stored_names.BMC_NAMESPACE)
        return (naming.made_by_us(obj)
                and namespace not in (None, metadata['namespace'])
                and not {namespace, None}.isdisjoint(self._store.namespaces))

    async def _delete(self, key: objects.ObjectKey) -> None:
        with logs.about(*key):
            for resource, obj in list(self._orphans(*key)):
                try:
                    await self._api.delete(resource, *key,
                                           obj['metadata']['uid'])
                except errors.ObjectNotFound:
                    # Deleted already; the watch reports it.
                    continue
                except errors.MachineError as e:
                    LOG.info('Orphaned %s %s/%s not deleted yet: %s',
                             resource.kind, *key, e)
                    raise workqueue.Failure(
                        getattr(e, 'retry_after', None)) from None
                LOG.warning('%s %s/%s deleted: its BMC is gone, and was '
                            'deleted without its finalizer',
                            resource.kind, *key)
