# SPDX-License-Identifier: Apache-2.0
"""The CDI of the sandbox: DataVolumes that are imported for real.

Kinds, admission, controllers, the import of images over HTTP and the upload
proxy, on top of the generic API server in :mod:`kubevirt_sandbox.api`.
What it does is modelled on CDI's own control plane; every module names the
part of CDI's source that it follows.
"""
from kubevirt_sandbox.cdi import arrival
from kubevirt_sandbox.cdi import cluster


def install(server, storage, options=None, later=False):
    """Put CDI into an API server; to be called where a loop runs.

    :param server: a :class:`sandbox.api.server.Server` with the kinds of
        Kubernetes itself installed.
    :param storage: the :class:`storage.Storage` of the claims.
    :param options: see :class:`cluster.Options`.
    :param later: not now, but when ``POST /sandbox/cdi`` is called.
    :returns: a :class:`cluster.Cluster` or an :class:`arrival.Arrival`; its
        ``start()`` and ``stop()`` are coroutines.
    """
    if later:
        return arrival.Arrival(server, storage, options)
    return cluster.Cluster(server, storage, options)
