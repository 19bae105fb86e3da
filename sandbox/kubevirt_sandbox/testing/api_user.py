# SPDX-License-Identifier: Apache-2.0
"""A user of ``kubectl`` whose plain reads and writes go to the API directly.

For tests that are not about ``kubectl``. It takes 0.05 s of CPU for each
command, and tests read an object many times until it is as expected.
"""

import base64
import functools
import json
import time

import requests
import yaml

from kubevirt_sandbox.testing import kubectl

_DISCOVERY = ('application/json;g=apidiscovery.k8s.io;v=v2;'
              'as=APIGroupDiscoveryList')

#: Field manager of what is applied.
MANAGER = 'kubectl'


class Connection:
    """Calls to the API with a kubeconfig that has a token.

    :param kubeconfig: path.
    """

    def __init__(self, kubeconfig):
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config['clusters'][0]['cluster']
        self.url = cluster['server'].rstrip('/')
        self.namespace = config['contexts'][0]['context'].get('namespace',
                                                              'default')
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.headers['Authorization'] = (
            'Bearer ' + config['users'][0]['user']['token'])
        authority = cluster.get('certificate-authority-data')
        self._session.verify = False
        if authority:
            path = kubeconfig.with_name(kubeconfig.name + '-ca.crt')
            path.write_bytes(base64.b64decode(authority))
            self._session.verify = str(path)
        self._resources = {}

    def request(self, method, path, **options):
        """Send a request.

        :returns: :class:`requests.Response`
        :raises AssertionError: it was refused.
        """
        options.setdefault('timeout', 60)
        response = self._session.request(method, self.url + path, **options)
        if not response.ok:
            raise AssertionError(f'{method} {path}: {response.status_code} '
                                 f'{response.text[:2000]}')
        return response

    def resource(self, name):
        """Find a resource.

        :param name: plural, singular, short name, kind, or ``kind.group``;
            any of them in any case.
        :returns: (path of its API version, plural, kind and group for names
            of objects, whether it is namespaced)
        """
        if name.lower() not in self._resources:
            self._discover()
        if name.lower() not in self._resources:
            raise AssertionError(f'the server has no resource {name}')
        return self._resources[name.lower()]

    def _discover(self):
        self._resources.clear()
        for root in '/api', '/apis':
            groups = self.request(
                'GET', root, headers={'Accept': _DISCOVERY}).json()['items']
            for each in groups:
                group = each['metadata'].get('name', '')
                version = each['versions'][0]
                path = '/'.join(filter(None, (
                    root, group, version['version'])))
                for one in version['resources']:
                    kind = one['responseKind']['kind']
                    found = (path, one['resource'], kind.lower() + (
                        '.' + group if group else ''),
                        one['scope'] == 'Namespaced')
                    for name in (one['resource'], one['singularResource'],
                                 kind, *one.get('shortNames', ())):
                        name = name.lower()
                        # kubectl takes the first group's, too.
                        self._resources.setdefault(name, found)
                        if group:
                            self._resources[f'{name}.{group}'] = found

    def path(self, name, namespace, obj=None):
        """Return the path of a resource, or of an object of it."""
        path, plural, _, namespaced = self.resource(name)
        if namespaced and namespace:
            path += '/namespaces/' + namespace
        path += '/' + plural
        return path + '/' + obj if obj else path


@functools.lru_cache(8)
def _connection(kubeconfig, changed):
    return Connection(kubeconfig)


class ApiUser(kubectl.Kubectl):
    """As :class:`kubectl.Kubectl`.

    ``get`` and ``names`` with kinds, a name or a label selector, ``apply`` of
    dictionaries, and ``wait`` for conditions do without ``kubectl``.
    """

    @property
    def api(self):
        """The user's `Connection`."""
        return _connection(self.kubeconfig,
                           self.kubeconfig.stat().st_mtime_ns)

    def _namespace(self):
        return self.namespace or self.api.namespace

    def _read(self, words):
        """Read objects.

        :param words: as of ``kubectl get``.
        :returns: list of (object, name of its kind), whether it is one object
            that was named; None for arguments that only kubectl knows.
        """
        words, namespace = list(words), self._namespace()
        params = {}
        while len(words) > 1 and words[-2] == '-l':
            params['labelSelector'] = words.pop()
            words.pop()
        if words and words[-1] == '-A':
            words.pop()
            namespace = None
        if len(words) == 1 and '/' in words[0]:
            words = words[0].split('/')
        if not 1 <= len(words) <= 2 or any(
                word.startswith('-') for word in words):
            return None
        if len(words) == 2:
            kind, name = words
            found = self.api.request('GET', self.api.path(
                kind, namespace, name)).json()
            return [(found, self.api.resource(kind)[2])], True
        found = []
        for kind in words[0].split(','):
            answer = self.api.request('GET', self.api.path(kind, namespace),
                                      params=params).json()
            version = {'apiVersion': answer['apiVersion'],
                       'kind': answer['kind'].removesuffix('List')}
            found += [({**version, **item}, self.api.resource(kind)[2])
                      for item in answer['items']]
        return found, False

    def get(self, *words):
        read = self._read(words)
        if read is None:
            return super().get(*words)
        found, named = read
        if named:
            return found[0][0]
        return {'apiVersion': 'v1', 'kind': 'List',
                'items': [item for item, _ in found]}

    def names(self, *words):
        read = self._read(words)
        if read is None:
            return super().names(*words)
        return sorted(f"{kind}/{item['metadata']['name']}"
                      for item, kind in read[0])

    def apply(self, *objects, words=()):
        if words or not all(isinstance(one, dict) for one in objects):
            return super().apply(*objects, words=words)
        for one in objects:
            metadata = one['metadata']
            group = one['apiVersion'].rpartition('/')[0]
            kind = one['kind'] + ('.' + group if group else '')
            namespace = metadata.get('namespace') or self._namespace()
            self.api.request(
                'PATCH', self.api.path(kind, namespace, metadata['name']),
                params={'fieldManager': MANAGER, 'force': 'true'},
                headers={'Content-Type': 'application/apply-patch+yaml'},
                data=json.dumps(one))
        return ''

    def create_namespace(self, name):
        """Create a namespace."""
        self.api.request('POST', '/api/v1/namespaces', json={
            'apiVersion': 'v1', 'kind': 'Namespace',
            'metadata': {'name': name}})

    def patch(self, kind, name, body):
        """Change an object by a merge patch."""
        self.api.request(
            'PATCH', self.api.path(kind, self._namespace(), name),
            headers={'Content-Type': 'application/merge-patch+json'},
            data=json.dumps(body))

    def wait(self, what, condition, seconds=120):
        kind, _, name = what.partition('/')
        word, _, value = condition.partition('=')
        if word != 'condition':
            return super().wait(what, condition, seconds)
        type_, _, status = value.partition('=')

        def is_met(obj):
            metadata, found = obj['metadata'], obj.get('status') or {}
            for one in found.get('conditions') or ():
                if one['type'].lower() == type_.lower():
                    seen = one.get('observedGeneration',
                                   found.get('observedGeneration'))
                    return (one['status'].lower() == (
                        status or 'true').lower() and (
                        seen is None or seen >= metadata['generation']))
            return False

        self.watch(kind, name, is_met, seconds)
        return ''

    def watch(self, kind, name, is_met, seconds=120):
        """Wait until an object meets a condition.

        :param is_met: function of the object.
        :param seconds: time limit.
        :returns: the object.
        :raises AssertionError: it does not exist, it was deleted, or the time
            is over.
        """
        deadline = time.monotonic() + seconds
        where = self.api.path(kind, self._namespace())
        last = self.get(kind, name)
        while not is_met(last):
            left = deadline - time.monotonic()
            if left <= 0:
                last['metadata'].pop('managedFields', None)
                raise AssertionError(
                    f'{kind}/{name} did not become as wanted in {seconds:g} '
                    f's; last: {json.dumps(last)[:4000]}')
            query = {'watch': 'true', 'fieldSelector': 'metadata.name=' + name,
                     'resourceVersion': last['metadata']['resourceVersion'],
                     'timeoutSeconds': max(1, round(left))}
            last = self._follow(where, query, is_met, left) or self.get(
                kind, name)
        return last

    def _follow(self, where, query, is_met, seconds):
        """Read a watch until a condition is met.

        :returns: the object; None if the watch ended before.
        """
        try:
            with self.api.request('GET', where, params=query, stream=True,
                                  timeout=(5, seconds)) as response:
                # A chunk of the response is read as soon as it arrives.
                for line in response.iter_lines(chunk_size=2 ** 16):
                    event = json.loads(line)
                    if event['type'] in ('DELETED', 'ERROR'):
                        return None
                    if is_met(event['object']):
                        return event['object']
        except requests.RequestException:
            return None
        return None
