# SPDX-License-Identifier: Apache-2.0
"""A test case with baremetal-operator and Ironic."""

import time

from kubevirt_sandbox.testing import webserver
from tests.fixtures import image_server
from tests.fixtures import ironic
from tests.fixtures.metal3 import hosts
from tests.fixtures.metal3 import programs
from tests.fixtures import operator


class Metal3TestCase(hosts.Hosts, operator.OperatorTestCase):
    """Hosts of BMCs that are processes, in Ironic.

    Each step prints the seconds that it took.
    """

    SANDBOX = ()
    ARGUMENTS = (*hosts.Hosts.ARGUMENTS, '--host-external-address',
                 '--host-disable-certificate-verification')

    @classmethod
    def install(cls):
        super().install()
        cls.admin.apply(*programs.definitions())

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = cls.share(image_server.ImageServer(
            webserver.own_address()))
        cls.ironic = cls.share(ironic.Ironic(programs.IRONIC))
        cls.metal3 = cls.share(programs.BareMetalOperator(
            cls.sandbox.kubeconfig, cls.ironic.url,
            cls.images.url + '/ironic-python-agent.iso'))

    def setUp(self):
        super().setUp()
        self.iso = {'url': self.images.url + '/it.iso', 'format': 'live-iso'}
        self.began = time.monotonic()

    def make(self, **spec):
        """Create a VM, and a BMC that gets a host."""
        self.vm_with_mac('n0')
        self.bmc('n0', 'n0', None, service={'type': 'LoadBalancer'}, **spec)
        self.kubectl('label', 'vmbmc', 'n0', 'metal3=true')

    def step(self, what, read, expected, seconds=180):
        """Wait for the end of a step."""
        self.until(what, read, expected, seconds)
        print(f'{what}: {time.monotonic() - self.began:.1f} s')
        self.began = time.monotonic()

    def wait_state(self, state, read=None):
        """Wait for a provisioning state.

        :param read: function that returns the host
        """
        self.step(state, lambda: (read or self.host)().get('status', {}).get(
            'provisioning', {}).get('state'), state)

    def wait_power(self, on):
        self.step(f'powered on: {on}', lambda: self.host()['status'].get(
            'poweredOn'), on)

    def nodes(self):
        """:returns: names of Ironic's nodes"""
        return [one.name for one in self.ironic.baremetal.nodes()]

    def delete(self):
        """Delete the BMC, and with it the host."""
        self.kubectl('delete', 'vmbmc', 'n0', '--wait=false')
        self.step('deleted', lambda: self.kubectl.names('bmh,vmbmc'), [])
        self.assertEqual([], self.nodes())
        self.sandbox.wait_stopped('n0', self.namespace)
        self.assertEqual([], self.finalizers('vm'))
