# SPDX-License-Identifier: Apache-2.0
"""Workloads of the sandbox: Deployments, pods as processes, services.

Based on the generic API server in :mod:`kubevirt_sandbox.api`. There are no
container images: a container is its command, run as a local process with the
programs of the running interpreter's environment; :mod:`environment` replaces
its file system and network.
"""
from kubevirt_sandbox.workloads import controller_manager


def install(server, options=None):
    """Install workloads in an API server. Needs a running event loop.

    :param server: :class:`kubevirt_sandbox.api.server.Server` with the kinds
        of Kubernetes itself.
    :param options: see :class:`controller_manager.Options`.
    :returns: :class:`controller_manager.ControllerManager`; its ``start()``
        and ``stop()`` are coroutines.
    """
    return controller_manager.ControllerManager(server, options)
