# SPDX-License-Identifier: Apache-2.0
"""Events of KubeVirt's controllers, as ``kubectl describe`` shows them."""

import collections
import hashlib
import secrets

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import metadata

NORMAL, WARNING = 'Normal', 'Warning'

_KEPT = 5000


class Recorder:
    """Records events; repeated ones are counted.

    :param store: the store.
    """

    def __init__(self, store):
        self._store = store
        self._names = collections.OrderedDict()

    def event(self, obj, kind, reason, message, component):
        """Record an event.

        :param obj: the object that it is about.
        :param kind: :data:`NORMAL` or :data:`WARNING`.
        :param reason: one word.
        :param message: a sentence.
        :param component: reporting component, e.g.
            'virtualmachine-controller'.
        """
        meta = obj['metadata']
        namespace = meta.get('namespace') or 'default'
        key = hashlib.blake2b('\0'.join((
            meta['uid'], kind, reason, message, component)).encode(),
            digest_size=12).digest()
        now = metadata.now()
        name = self._names.get(key)
        if name is not None:
            try:
                self._store.change(core.EVENT, *name, lambda event:
                                   event.update(count=event['count'] + 1,
                                                lastTimestamp=now))
                return
            except errors.ApiError:
                del self._names[key]  # the event was deleted
        name = f'{meta["name"]}.{secrets.token_hex(8)}'
        try:
            self._store.create(core.EVENT, {
                'metadata': {'name': name, 'namespace': namespace},
                'involvedObject': {
                    'apiVersion': obj['apiVersion'], 'kind': obj['kind'],
                    'namespace': namespace, 'name': meta['name'],
                    'uid': meta['uid'],
                    'resourceVersion': meta['resourceVersion']},
                'reason': reason, 'message': message, 'type': kind,
                'source': {'component': component}, 'count': 1,
                'firstTimestamp': now, 'lastTimestamp': now,
                'reportingComponent': component, 'reportingInstance': ''})
        except errors.ApiError:
            return  # the namespace is being deleted
        self._names[key] = (namespace, name)
        if len(self._names) > _KEPT:
            _, oldest = self._names.popitem(last=False)
            if self._store.find(core.EVENT, *oldest) is not None:
                self._store.delete(core.EVENT, *oldest)
