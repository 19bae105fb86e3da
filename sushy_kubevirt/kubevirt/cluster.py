# SPDX-License-Identifier: Apache-2.0
"""The machines of one cluster: finding them, reading them, writing to them.

Joins the client, the cache and the keeper. Starts nothing before it is first
asked for something, so that it can be made before a process forks.
"""

from sushy_kubevirt.kubevirt import options as options_


class Cluster:
    """All machines of a scope: one namespace, several, all, or one VM.

    :param connection: a `connection.Connection`
    :param namespaces: names; empty for all namespaces
    :param label_selector: only VMs with these labels
    :param options: an `options.Options`
    :param vm: 'namespace/name': this VM alone, whatever else there is
    """

    def __init__(self, connection, namespaces=(), label_selector='',
                 options=None, vm=None):
        self.options = options or options_.Options()

    def machines(self):
        """:returns: list of `machine.Machine`, by namespace and name"""

    def machine(self, identity):
        """Find one machine.

        :param identity: UUID (of the firmware, else the VM's uid), name, or
            namespace/name
        :raises: `errors.MachineNotFound`, `errors.AmbiguousName`
        """

    def wait_ready(self, timeout=None):
        """Wait for the first list.

        :raises: `errors.Unavailable`, `errors.AccessDenied`, with the reason
        """

    def subscribe(self, callback):
        """Be told of each change of a machine (and of all there are, first).

        :param callback: function of (machine, vm, vmi), called in a watch's
            thread: it must not block. vm is None when the VM is gone.
        """

    def close(self):
        """Stop the threads, let go of the connections."""
