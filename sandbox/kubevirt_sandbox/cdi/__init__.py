# SPDX-License-Identifier: Apache-2.0
"""The sandbox's CDI: DataVolumes with real image imports.

Kinds, admission, controllers, the import of images over HTTP and the upload
proxy, on top of the generic API server in :mod:`kubevirt_sandbox.api`.
What it does is modelled on CDI's own control plane; every module names the
part of CDI's source that it follows.
"""
from kubevirt_sandbox.cdi import components
from kubevirt_sandbox.cdi import installation


def install(server, storage, options=None, later=False):
    """Install CDI in an API server. Needs a running event loop.

    :param server: :class:`kubevirt_sandbox.api.server.Server` with the kinds
        of Kubernetes itself.
    :param storage: the :class:`storage.Storage` of the claims.
    :param options: see :class:`components.Options`.
    :param later: install it only when ``POST /sandbox/cdi`` is called.
    :returns: a :class:`components.Components` or an
        :class:`installation.Installation`; ``start()`` and ``stop()`` of
        both are coroutines.
    """
    if later:
        return installation.Installation(server, storage, options)
    return components.Components(server, storage, options)
