# SPDX-License-Identifier: Apache-2.0
"""The VMs and Secrets of the cluster: that they are there, and since when.

Watches tell their metadata alone. A Secret that a BMC has to do with is read
by name when its version has moved; what is kept of it is `secrets.Seen`.
"""

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import kinds
from sushy_kubevirt.operator import permission
from sushy_kubevirt.operator import secrets
from sushy_kubevirt.operator import store


class Machines:
    """VMs, of which little is kept."""

    def __init__(self):
        self._known = {}

    def put(self, obj):
        """Take what was seen.

        :param obj: dict with metadata
        :returns: whether anything is new that a BMC could mind
        """
        metadata = obj['metadata']
        at = metadata['namespace'], metadata['name']
        found = (metadata['uid'], 'deletionTimestamp' in metadata,
                 (metadata.get('annotations') or {}).get(
                     permission.ANNOTATION))
        if self._known.get(at) == found:
            return False
        self._known[at] = found
        return True

    def drop(self, namespace, name):
        """:returns: whether there was one"""
        return self._known.pop((namespace, name), None) is not None

    def gone(self, obj):
        """Take that a VM was deleted.

        :param obj: dict with metadata
        :returns: whether that is news
        """
        return self.drop(obj['metadata']['namespace'],
                         obj['metadata']['name'])

    def get(self, at):
        """What is known of a VM.

        :param at: `spec.Reference`
        :returns: dict with apiVersion, kind and metadata, or None
        """
        found = self._known.get((at.namespace, at.name))
        if found is None:
            return None
        uid, deleting, allowed = found
        metadata = {'namespace': at.namespace, 'name': at.name, 'uid': uid}
        if deleting:
            metadata['deletionTimestamp'] = True
        if allowed is not None:
            metadata['annotations'] = {permission.ANNOTATION: allowed}
        return {'apiVersion': kinds.VM.api_version, 'kind': kinds.VM.kind,
                'metadata': metadata}

    def names(self):
        """:returns: list of (namespace, name)"""
        return list(self._known)


class Secrets:
    """Secrets: versions of all, and what was seen of some.

    :param api: an `api.Api`
    """

    def __init__(self, api):
        self._api = api
        self._versions = {}
        self._seen = {}
        self._gone = {}

    def put(self, obj):
        """Take what a watch told.

        :param obj: dict with metadata
        :returns: whether it is not what was seen
        """
        metadata = obj['metadata']
        at = metadata['namespace'], metadata['name']
        version = store.version(obj)
        if self._versions.get(at, -1) >= version:
            return False
        self._gone.pop(at, None)
        self._versions[at] = version
        return True

    def take(self, secret):
        """Look at a Secret that a call answered with.

        :param secret: dict
        :returns: `secrets.Seen`
        """
        metadata = secret['metadata']
        at = metadata['namespace'], metadata['name']
        # The watch has yet to tell of it: it is news to other BMCs that mind
        # it. An answer may also come after the watch has told of the end of
        # what is in it; nothing would tell of that once more.
        seen = secrets.look(secret)
        if store.version(secret) >= max(self._read(at),
                                        self._gone.get(at, -1)):
            self._seen[at] = seen
        return seen

    def drop(self, namespace, name):
        """:returns: whether there was one"""
        at = namespace, name
        seen = self._seen.pop(at, None)
        return self._versions.pop(at, None) is not None or seen is not None

    def gone(self, obj):
        """Take that a Secret was deleted.

        :param obj: dict with the metadata that it had at last
        :returns: whether that is news; it is, also if we deleted it: to
            other BMCs that mind it
        """
        metadata = obj['metadata']
        at = metadata['namespace'], metadata['name']
        if store.version(obj) < max(self._versions.get(at, -1),
                                    self._read(at)):
            # There is another by now.
            return False
        store.note_gone(self._gone, at, obj)
        self.drop(*at)
        return True

    def forget(self, at):
        """Keep nothing of a Secret that no BMC names any more.

        :param at: `spec.Reference`
        """
        self._seen.pop((at.namespace, at.name), None)

    def names(self):
        """:returns: list of (namespace, name)"""
        return list({**self._versions, **self._seen})

    async def get(self, at):
        """What there is of a Secret, as it is now as far as is known.

        :param at: `spec.Reference`
        :returns: `secrets.Seen`, or None
        :raises: `errors.MachineError`
        """
        where = at.namespace, at.name
        if self._read(where) < self._versions.get(where, -1):
            return await self.read(at)
        return self._seen.get(where)

    def _read(self, where):
        """The version that was looked at."""
        seen = self._seen.get(where)
        return -1 if seen is None else store.version(seen.obj)

    async def read(self, at):
        """The same, but ask for it.

        :param at: `spec.Reference`
        """
        try:
            return self.take(await self._api.get(
                kinds.SECRET, at.namespace, at.name))
        except errors.ObjectNotFound:
            # The watch will say so, or say that there is another.
            self._seen.pop((at.namespace, at.name), None)
            return None
