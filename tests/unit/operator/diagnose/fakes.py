# SPDX-License-Identifier: Apache-2.0
"""A cluster that checks read, and what they find in it."""

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator.diagnose import kinds
from sushy_kubevirt.operator.diagnose import reader


def kubevirt(version='v1.9.0', phase='Deployed', conditions=(), on=(),
             off=()):
    return {'metadata': {'name': 'kubevirt', 'namespace': 'kubevirt'},
            'spec': {'configuration': {'developerConfiguration': {
                'featureGates': list(on),
                'disabledFeatureGates': list(off)}}},
            'status': {'observedKubeVirtVersion': version, 'phase': phase,
                       'conditions': list(conditions)}}


def named(name, namespace=None, **members):
    metadata = {'name': name, **members.pop('metadata', {})}
    if namespace:
        metadata['namespace'] = namespace
    return {'metadata': metadata, **members}


class Client:
    """Stands in for `client.Client`.

    :param version: of the API server
    :param groups: API groups that are served
    """

    def __init__(self, version='v1.34.4', groups=(
            'kubevirt.io', 'cdi.kubevirt.io')):
        self.groups = groups
        self.objects = {}       # (resource, namespace, name): dict
        self.denied = set()     # resources that may not be read
        self.unserved = ()
        self.lacking = []       # attributes of requests that are not allowed
        self.username = 'admin'
        self.asked = []
        self._version = version

    def put(self, resource, *objects):
        for one in objects:
            metadata = one['metadata']
            self.objects[resource, metadata.get('namespace') or None,
                         metadata['name']] = one
        return self

    def version(self):
        return {'gitVersion': self._version}

    def serves_group(self, group):
        return group in self.groups

    def serves(self, resource):
        return resource not in self.unserved

    def _check(self, verb, resource, namespace):
        if resource in self.denied:
            raise errors.AccessDenied('forbidden', verb, str(resource),
                                      namespace or '')

    def get(self, resource, namespace, name):
        self._check('get', resource, namespace)
        try:
            return self.objects[resource, namespace, name]
        except KeyError:
            raise errors.ObjectNotFound(name) from None

    def pages(self, resource, namespace=None, label_selector='',
              field_selector=''):
        self._check('list', resource, namespace)
        found = [one for (kind, where, name), one in self.objects.items()
                 if kind == resource and namespace in (None, where)
                 and field_selector in ('', f'metadata.name={name}')]
        key, _, value = label_selector.partition('=')
        yield [one for one in found if not key or (
            one['metadata'].get('labels') or {}).get(key) == value], '7'

    def create(self, resource, namespace, body):
        self._check('create', resource, namespace)
        if resource == kinds.SELF_REVIEW:
            return {'status': {'userInfo': {'username': self.username}}}
        spec = body['spec']
        self.asked.append(spec)
        return {'status': {'allowed': not any(
            all(spec['resourceAttributes'].get(key) == value
                for key, value in one.items()) for one in self.lacking)}}


def reading(client, seconds=60, progress=lambda sentence: None):
    """:returns: a `reader.Reader`"""
    return reader.Reader(client, seconds, progress)


def brief(found):
    """:returns: list of (status, reason)"""
    return [(one.status.value, one.reason) for one in found]


KUBEVIRT, BMC, SECRET = (api_resources.KUBEVIRT, bmc_resources.BMC,
                         bmc_resources.SECRET)
