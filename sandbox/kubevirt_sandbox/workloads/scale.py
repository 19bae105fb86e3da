# SPDX-License-Identifier: Apache-2.0
"""The subresource ``scale`` of Deployments and ReplicaSets."""

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import labels


def view(obj):
    """Return an object as ``autoscaling/v1`` Scale."""
    meta = obj['metadata']
    return {
        'kind': 'Scale', 'apiVersion': 'autoscaling/v1',
        'metadata': {name: meta[name] for name in (
            'name', 'namespace', 'uid', 'resourceVersion',
            'creationTimestamp')},
        'spec': {'replicas': obj['spec'].get('replicas', 1)},
        'status': {'replicas': (obj.get('status') or {}).get('replicas', 0),
                   'selector': labels.text(obj['spec'].get('selector'))}}


def handler(kind):
    """Make the handler of the subresource ``scale`` of a kind."""
    async def answer(request):
        store = request.store
        if request.method == 'GET':
            return 200, view(store.get(kind, request.namespace,
                                       request.name))
        wanted = (request.body.get('spec') or {}).get('replicas')
        if type(wanted) is not int or wanted < 0:
            raise errors.bad_request('spec.replicas: a number is needed')
        version = (request.body.get('metadata') or {}).get('resourceVersion')

        def change(obj):
            if version:
                obj['metadata']['resourceVersion'] = version
            obj['spec']['replicas'] = wanted
        return 200, view(store.change(
            kind, request.namespace, request.name, change, manager='scale',
            user=request.user))
    return answer
