# SPDX-License-Identifier: Apache-2.0
"""Nodes of a cluster in a real Ironic: time to enrol them, and to check them.

Thousands of BMCs do not fit into a machine, so the nodes share those of a few
VMs. Ironic logs in to each of its nodes all the same.
"""

import time
import types

import fixtures

from sushy_kubevirt.cluster import identity
from sushy_kubevirt.cluster.ironic import client
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster.ironic import provision
from sushy_kubevirt.cluster import model
from sushy_kubevirt.remote import endpoint
from tests.bench import processor
from tests.bench import report
from tests.fixtures import ironic
from tests.fixtures import redfish_pod
from tests.fixtures import sandbox

_OWNER = 'default/bench/0'
_PODS = 4


class Nodes(fixtures.Fixture):
    """An Ironic, and nodes to enrol in it.

    :param count: number of nodes
    """

    def __init__(self, count):
        super().__init__()
        self.count = count

    def _setUp(self):
        cluster = self.useFixture(sandbox.Sandbox(vms=_PODS))
        self.pods = [self.useFixture(redfish_pod.RedfishPod(
            cluster, f'vm-{index}')) for index in range(_PODS)]
        # Only what enrolment causes is to be measured.
        self.ironic = self.useFixture(ironic.Ironic({
            'conductor': {'sync_power_state_interval': 3600}}))
        self.client = client.Client(
            types.SimpleNamespace(baremetal=self.ironic.baremetal))

    def wanted(self):
        kind = model.NodeType('small', 1, 256, driver='redfish')
        network = model.Network('net', switch_info='net')
        for index in range(self.count):
            name, pod = f'node-{index}', self.pods[index % _PODS]
            yield nodes.Wanted(
                model.Node(name, index, kind, (model.Interface(
                    'net', network, identity.mac('bench', name, 'net')),),
                    ironic=model.IronicConfig(
                        resource_class='small', traits=('CUSTOM_BENCH',),
                        interfaces={'boot_interface': 'redfish-virtual-media'},
                        ca_file=str(pod.ca))),
                endpoint.Bmc('127.0.0.1', pod.port, username='admin',
                             password=pod.password, revision='1'),
                f'vm-{index}')

    def enrol(self):
        """Enrol the nodes, or check them; return the seconds it took.

        :raises: AssertionError if a node is not available
        """
        began = time.monotonic()
        results = provision.Enrolment(
            self.client, _OWNER, self.wanted()).apply()
        wrong = [one for one in results if one.state != 'available']
        if wrong:
            raise AssertionError(f'{len(wrong)} nodes: {wrong[0]}')
        return time.monotonic() - began

    def processor_time(self):
        """Return the seconds of CPU of this process and of Ironic's."""
        return time.process_time(), processor.seconds(self.ironic.process.pid)


def measure(count):
    """Enrol nodes, and check them.

    :param count: number of nodes
    :returns: iterator of `report.Row`
    """
    what = f'enrol {count} nodes'
    with Nodes(count) as enrolled:
        before = enrolled.processor_time()
        yield report.Row(what, 's', enrolled.enrol())
        for name, earlier, after in zip(('the client', 'Ironic'), before,
                                        enrolled.processor_time()):
            yield report.Row(f'{what}, {name}', 's of CPU', after - earlier)
        yield report.Row(f'unchanged, {count} nodes in Ironic', 's',
                         enrolled.enrol())
