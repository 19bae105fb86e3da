# SPDX-License-Identifier: Apache-2.0
"""The life of namespaces: nothing outside one, and nothing left of one."""
from kubevirt_sandbox.api import errors

PERMANENT = ('default', 'kube-system', 'kube-public', 'kube-node-lease')

_PROTECTED = ('default', 'kube-system', 'kube-public')


def activate(admission):
    """Set the phase, finalizer and name label of a new namespace."""
    if admission.operation == 'CREATE':
        new = admission.new
        new['spec'] = {'finalizers': ['kubernetes']}
        new['status'] = {'phase': 'Active'}
        new['metadata'].setdefault('labels', {})[
            'kubernetes.io/metadata.name'] = new['metadata'].get('name', '')
    elif admission.operation == 'UPDATE' and not admission.subresource:
        admission.new['spec'] = admission.old.get('spec', {})


def refuse(admission):
    """Refuse the deletion of built-in namespaces."""
    if admission.operation == 'DELETE':
        name = admission.old['metadata']['name']
        if name in _PROTECTED:
            raise errors.ApiError(
                403, 'Forbidden', f'namespaces "{name}" is forbidden: this '
                'namespace may not be deleted',
                {'name': name, 'kind': 'namespaces'})


def terminate(namespace):
    """Mark a namespace that is to be deleted, in place."""
    namespace.setdefault('status', {})['phase'] = 'Terminating'


class Lifecycle:
    """Deletes the content of ending namespaces and fills new ones.

    :param server: a :class:`server.Server`.
    :param namespace: the Kind of namespaces.
    :param account: the Kind of service accounts.
    :param config_map: the Kind of config maps.
    """

    def __init__(self, server, namespace, account, config_map):
        self._store = server.store
        self._server = server
        self._namespace = namespace
        self._account = account
        self._config_map = config_map
        self._ending = set()
        self._store.gates.append(self._check)
        self._store.subscribe(namespace, self._on_event)
        self._store.listen(None, self._on_any_event)

    def _check(self, kind, admission):
        """Refuse to create objects in a missing or terminating namespace."""
        if admission.operation != 'CREATE' or not kind.namespaced:
            return
        meta = admission.new['metadata']
        namespace = self._store.find(self._namespace, '', meta['namespace'])
        if namespace is None:
            raise errors.not_found(self._namespace, meta['namespace'])
        if 'deletionTimestamp' in namespace['metadata']:
            name = meta['namespace']
            raise errors.forbidden(
                kind, meta.get('name', ''), 'unable to create new content in '
                f'namespace {name} because it is being terminated', [
                    {'reason': 'NamespaceTerminating', 'field':
                     'metadata.namespace', 'message':
                     f'namespace {name} is being terminated'}])

    def _on_event(self, type_, obj, old):
        name = obj['metadata']['name']
        if type_ == 'DELETED':
            self._ending.discard(name)
        elif 'deletionTimestamp' in obj['metadata']:
            self._ending.add(name)
            self._server.soon(self._empty, name)
        elif type_ == 'ADDED':
            self._store.create(self._account, {'metadata': {
                'name': 'default', 'namespace': name}},
                manager='kube-controller-manager')
            if self._server.ca:
                self._store.create(self._config_map, {
                    'metadata': {'name': 'kube-root-ca.crt',
                                 'namespace': name},
                    'data': {'ca.crt': self._server.ca.decode()}},
                    manager='kube-controller-manager')

    def _on_any_event(self, event):
        namespace = event.record.key[0]
        if event.type == 'DELETED' and namespace in self._ending:
            self._server.soon(self._empty, namespace)

    def _empty(self, name):
        """Delete what is in a namespace, then finalize the namespace."""
        if self._store.find(self._namespace, '', name) is None:
            return
        for collection in self._store.collections():
            for record in collection.current(name):
                if 'deletionTimestamp' not in record.obj['metadata']:
                    try:
                        self._store.delete(collection.kind, *record.key)
                    except errors.ApiError:
                        # Its admission keeps it for now: asked again at
                        # the next deletion in the namespace.
                        continue
        if any(collection.current(name)
               for collection in self._store.collections()
               if collection.kind.namespaced):
            return
        if self._store.find(self._namespace, '', name) is None:
            return
        self._store.change(
            self._namespace, '', name,
            lambda obj: obj.get('spec', {}).pop('finalizers', None),
            subresource='finalize', manager='kube-controller-manager')
