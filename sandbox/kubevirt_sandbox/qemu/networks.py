# SPDX-License-Identifier: Apache-2.0
"""Virtual switches that connect QEMU guests.

The cards of guests in networks of NetworkAttachmentDefinitions are connected
to switches: one for each Linux bridge that definitions of the bridge plugin
name, and for each other definition. A switch is a hub: each card gets all
frames of the others. Nodes have none between them, and nothing leaves the
sandbox. A card has a pair of datagram sockets; QEMU has one end.
"""

import asyncio
import collections
import json
import socket

from kubevirt_sandbox.kubevirt import network_attachments
from kubevirt_sandbox.kubevirt import paths

_LONGEST_FRAME = 1 << 16


class Networks:
    """All switches.

    :param store: the store.
    """

    def __init__(self, store):
        self._store = store
        self._switches = collections.defaultdict(set)

    def connect(self, vmi):
        """Connect the cards of a VMI.

        :param vmi: the VMI.
        :returns: :class:`Links`.
        """
        found, loop = {}, asyncio.get_running_loop()
        for network in paths.networks(vmi['spec']):
            reference = paths.at(network, 'multus', 'networkName')
            if reference:
                ours, theirs = socket.socketpair(type=socket.SOCK_DGRAM)
                ours.setblocking(False)
                switch = self._switches[self._key(vmi, reference)]
                switch.add(ours)
                loop.add_reader(ours, _forward, switch, ours)
                found[network['name']] = switch, ours, theirs
        return Links(loop, found)

    def _key(self, vmi, reference):
        namespace, name = network_attachments.reference(vmi, reference)
        definition = self._store.find(
            network_attachments.KIND, namespace, name)
        try:
            config = json.loads(paths.at(definition, 'spec', 'config') or '')
            plugin = (config.get('plugins') or [config])[0]
            if plugin['type'] == 'bridge':
                return plugin['bridge']
        except (ValueError, AttributeError, LookupError, TypeError):
            pass    # Another plugin's, or none's.
        return namespace, name


class Links:
    """The connections of one VMI.

    :param loop: the event loop.
    :param links: dictionary of the name of a network to switch, the switch's
        socket and QEMU's.
    """

    def __init__(self, loop, links):
        self._loop = loop
        self._links = links

    @property
    def descriptors(self):
        """QEMU's descriptors by the names of networks."""
        return {name: theirs.fileno()
                for name, (_, _, theirs) in self._links.items()}

    def hand_over(self):
        """Close the ends that QEMU has now."""
        for _, _, theirs in self._links.values():
            theirs.close()

    def close(self):
        """Disconnect."""
        self.hand_over()
        for switch, ours, _ in self._links.values():
            switch.discard(ours)
            self._loop.remove_reader(ours)
            ours.close()
        self._links = {}


def _forward(switch, port):
    try:
        frame = port.recv(_LONGEST_FRAME)
    except OSError:
        return
    for other in switch:
        if other is not port:
            try:
                other.send(frame)
            except OSError:
                pass    # As on a wire, what cannot be taken is lost.
