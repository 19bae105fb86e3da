# SPDX-License-Identifier: Apache-2.0
"""The sandbox's KubeVirt.

Kinds, schemas, admission, subresources, controllers and simulated guests, on
top of the generic API server in :mod:`kubevirt_sandbox.api`. What it does is
modelled on KubeVirt's own control plane; every module names the part of
KubeVirt's source that it follows.
"""

from kubevirt_sandbox.kubevirt import control_plane


def install(server, options=None, storage=None):
    """Install KubeVirt in an API server. Needs a running event loop.

    :param server: :class:`kubevirt_sandbox.api.server.Server` with the kinds
        of Kubernetes itself.
    :param options: see :class:`control_plane.Options`.
    :param storage: :class:`kubevirt_sandbox.cdi.storage.Storage` of the
        claims; None leaves claims without data.
    :returns: :class:`control_plane.ControlPlane`; its ``start()`` and
        ``stop()`` are coroutines.
    """
    return control_plane.ControlPlane(server, options, storage)
