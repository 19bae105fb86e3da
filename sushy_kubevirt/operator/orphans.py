# SPDX-License-Identifier: Apache-2.0
"""Takes rights away that are about a VM elsewhere and are no BMC's any more.

No owner reference reaches them; a finalizer holds a BMC until they are gone.
But whoever may change a BMC may take its finalizer away, and would keep them
for ever, also when the VM's owner takes the permission back.
"""

import logging

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import kinds
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import workqueue

LOG = logging.getLogger(__name__)

#: The binding first: without it the Role is nothing.
KINDS = (kinds.BINDING, kinds.ROLE)


class Orphans:
    """Looks for them.

    :param api: an `api.Api`
    :param known: a `known.Known`
    :param namespaces: whose BMCs are all known; (None,) for all
    """

    def __init__(self, api, known, namespaces):
        self._api = api
        self._known = known
        self._namespaces = namespaces
        self._queue = workqueue.Queue(self._tidy, 1)
        self._begun = False

    def begin(self):
        """Look at all, now that all BMCs are known; or again."""
        if not self._begun:
            self._begun = True
            self._queue.start()
        for resource in KINDS:
            for at in self._known.objects.names(resource):
                self.look(*at)

    def look(self, namespace, name):
        """Look at a Role and its binding: one of them is new, or a BMC gone.

        :param namespace: of both
        :param name: of both
        """
        if self._begun and any(self._of(namespace, name)):
            self._queue.add((namespace, name))

    async def close(self):
        """Work no more."""
        await self._queue.close(0)

    def _of(self, namespace, name):
        for resource in KINDS:
            if self._known.minding(resource, namespace, name):
                continue
            obj = self._known.objects.get(resource, namespace, name)
            if (obj is not None and self._is_elsewhere(obj)
                    and 'deletionTimestamp' not in obj['metadata']):
                yield resource, obj

    def _is_elsewhere(self, obj):
        """Whether an object is of a BMC of another namespace, which we would
        know of.
        """
        metadata = obj['metadata']
        of = (metadata.get('labels') or {}).get(naming.NAMESPACE_LABEL)
        return (naming.made_by_us(obj)
                and of not in (None, metadata['namespace'])
                and (of in self._namespaces or None in self._namespaces))

    async def _tidy(self, key):
        with logs.about(*key):
            for resource, obj in list(self._of(*key)):
                try:
                    await self._api.delete(resource, *key,
                                           obj['metadata']['uid'])
                except errors.ObjectNotFound:
                    # The watch tells.
                    continue
                except errors.MachineError as e:
                    LOG.info('%s', e)
                    raise workqueue.Failure(
                        getattr(e, 'retry_after', None)) from None
                LOG.warning('%s %s/%s was of a BMC that is gone without its '
                            'finalizer: it is deleted', resource.kind, *key)
