# SPDX-License-Identifier: Apache-2.0
"""Workloads of the sandbox: Deployments, pods as processes, services.

On top of the generic API server in :mod:`kubevirt_sandbox.api`. There
are no container images: a container is its command, run as a local process
with the programs of the running interpreter's environment; see
:mod:`environment` for what stands for its file system and its network.
"""
from kubevirt_sandbox.workloads import cluster


def install(server, options=None):
    """Put workloads into an API server; to be called where a loop runs.

    :param server: a :class:`sandbox.api.server.Server` with the kinds of
        Kubernetes itself installed.
    :param options: see :class:`cluster.Options`.
    :returns: a :class:`cluster.Cluster`; its ``start()`` and ``stop()`` are
        coroutines.
    """
    return cluster.Cluster(server, options)
