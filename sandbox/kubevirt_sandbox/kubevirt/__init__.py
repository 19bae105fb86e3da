# SPDX-License-Identifier: Apache-2.0
"""The KubeVirt of the sandbox.

Kinds, schemas, admission, verbs, controllers and simulated guests, on top of
the generic API server in :mod:`kubevirt_sandbox.api`. What it does is
modelled on KubeVirt's own control plane; every module names the part of
KubeVirt's source that it follows.
"""

from kubevirt_sandbox.kubevirt import cluster


def install(server, options=None, storage=None):
    """Put KubeVirt into an API server; to be called where a loop runs.

    :param server: a :class:`sandbox.api.server.Server` with the kinds of
        Kubernetes itself installed.
    :param options: see :class:`cluster.Options`.
    :param storage: the :class:`sandbox.cdi.storage.Storage` with what claims
        hold; None: they hold nothing.
    :returns: a :class:`cluster.Cluster`; its ``start()`` and ``stop()`` are
        coroutines.
    """
    return cluster.Cluster(server, options, storage)
