# SPDX-License-Identifier: Apache-2.0
"""CDI as a whole: kinds, webhooks, controllers and the upload proxy."""
import asyncio
import dataclasses
import ipaddress

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import volumes
from kubevirt_sandbox.cdi import cdi_kinds
from kubevirt_sandbox.cdi import cdi_roles
from kubevirt_sandbox.cdi import datavolumes
from kubevirt_sandbox.cdi import import_delays
from kubevirt_sandbox.cdi import importers
from kubevirt_sandbox.cdi import storage_settings
from kubevirt_sandbox.cdi import tokens
from kubevirt_sandbox.cdi import uploadproxy
from kubevirt_sandbox.cdi import uploads
from kubevirt_sandbox.kubevirt import events

NAMESPACE = 'cdi'
VERSION = 'v1.65.0'

BUNDLE, BUNDLE_KEY = 'cdi-uploadproxy-signer-bundle', 'ca-bundle.crt'
"""The ConfigMap with the CA of the upload proxy, and its key."""


@dataclasses.dataclass
class Options:
    """Options of CDI.

    :param import_back_off: seconds until the second restart of an import
        that fails, doubled with each further one.
    :param progress_seconds: interval of reporting the progress of an import.
    :param token_seconds: lifetime of an upload token.
    :param listen: (address, port) of the API server; the upload proxy is on
        the same address.
    :param lag: maximum delay of each reconciliation in seconds.
    """

    import_back_off: float = 0.5
    progress_seconds: float = 0.25
    token_seconds: int = tokens.LIFETIME
    listen: tuple = ('127.0.0.1', 0)
    lag: float = 0
    images: tuple = ()


class Components:
    """CDI in an API server.

    :param server: the :class:`sandbox.api.server.Server`; kinds and routes
        are registered at once.
    :param storage: the :class:`storage.Storage` of the claims.
    :param options: anything with the attributes of :class:`Options`; those
        that it lacks have their defaults.
    :param slow: a :class:`import_delays.ImportDelays` whose routes are
        served already; None makes one.
    """

    def __init__(self, server, storage, options=None, slow=None):
        known = {f.name for f in dataclasses.fields(Options)}
        options = Options(**{
            name: getattr(options, name) for name in known
            if getattr(options, name, None) is not None})
        loop = asyncio.get_running_loop()
        self.store = server.store
        self._tokens = tokens.Tokens(options.token_seconds)
        self.kinds = cdi_kinds.build(self._tokens)
        for kind in self.kinds:
            server.register_kind(kind)
        recorder = events.Recorder(self.store)
        if slow is None:
            slow = import_delays.ImportDelays()
            slow.install(server)
        pods = importers.Importers(server, storage, recorder, loop, slow,
                                   options.import_back_off, options.lag,
                                   dict(options.images))
        targets = uploads.Uploads(server, recorder, loop, options.lag)
        host = options.listen[0]
        if ipaddress.ip_address(host).is_unspecified:
            host = '::1' if ':' in host else '127.0.0.1'
        self._proxy = uploadproxy.Proxy(targets, storage, self._tokens, loop,
                                        host)
        self._parts = [
            targets, pods, datavolumes.Controller(
                self.store, self.kinds.data_volume, recorder, loop,
                pods.progress, options.progress_seconds, options.lag),
            storage_settings.Controller(self.store, self.kinds, loop,
                                        options.lag)]

    async def start(self):
        """Serve the upload proxy and make CDI's own objects."""
        await self._proxy.start()
        for kind, obj in self._objects():
            if kind.namespaced:
                obj['metadata']['namespace'] = NAMESPACE
            status = obj.pop('status', None)
            made = self.store.create(kind, obj, manager='cdi-operator')
            if status is not None:
                self.store.update(
                    kind, {**made, 'status': status}, manager='cdi-operator',
                    subresource='status' if kind.status else '')

    async def stop(self):
        """End imports and uploads."""
        for part in reversed(self._parts):
            part.close()
        await self._proxy.stop()

    def _objects(self):
        yield from cdi_roles.objects()
        yield core.NAMESPACE, {'metadata': {'name': NAMESPACE}}
        yield core.CONFIG_MAP, {
            'metadata': {'name': BUNDLE},
            'data': {BUNDLE_KEY: self._proxy.ca.decode()}}
        yield core.SERVICE, {
            'metadata': {'name': 'cdi-uploadproxy'},
            'spec': {'ports': [{'port': 443, 'targetPort': 8443}],
                     'selector': {'cdi.kubevirt.io': 'cdi-uploadproxy'}}}
        config = {'featureGates': ['HonorWaitForFirstConsumer'],
                  'uploadProxyURLOverride': self._proxy.url}
        yield self.kinds.cdi, {
            'metadata': {'name': 'cdi'}, 'spec': {'config': config},
            'status': {'phase': 'Deployed', 'operatorVersion': VERSION,
                       'targetVersion': VERSION, 'observedVersion': VERSION,
                       'conditions': [
                           {'type': kind, 'status': status,
                            'reason': 'DeployCompleted' if kind
                            == 'Available' else '',
                            'message': 'Deployment Completed' if kind
                            == 'Available' else ''}
                           for kind, status in (
                               ('Available', 'True'),
                               ('Progressing', 'False'),
                               ('Degraded', 'False'))]}}
        yield self.kinds.config, {
            'metadata': {'name': storage_settings.CONFIG}, 'spec': config,
            'status': {
                'uploadProxyURL': self._proxy.url,
                'filesystemOverhead': storage_settings.config_overhead(
                    self.store, config),
                'preallocation': False}}
        for storage_class in self.store.list(volumes.STORAGE_CLASS):
            yield self.kinds.profile, {
                'metadata': {'name': storage_class['metadata']['name']},
                'spec': {}, 'status': storage_settings.profile_status(
                    storage_class, {})}
