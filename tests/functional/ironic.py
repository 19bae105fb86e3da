# SPDX-License-Identifier: Apache-2.0
"""Ironic as a fixture: the real services in one process, and its API.

The process ``ironic`` holds API and conductor together, without a message
bus, over SQLite, without authentication, on loopback, with everything it
writes in a folder that goes away. Its intervals are short so that tests are;
what it does is not changed.

It knows nothing of this project: a node is enrolled with a driver and the
address of a BMC, as an operator would.
"""

import configparser
import pathlib
import socket
import subprocess
import time

import fixtures
import openstack

from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process

#: Interfaces of a node by driver.
_INTERFACES = {
    'redfish': {'boot_interface': 'redfish-virtual-media',
                'bios_interface': 'redfish',
                'inspect_interface': 'redfish',
                'management_interface': 'redfish',
                'power_interface': 'redfish',
                'vendor_interface': 'redfish'},
    'ipmi': {'boot_interface': 'pxe',
             'management_interface': 'ipmitool',
             'power_interface': 'ipmitool',
             'vendor_interface': 'ipmitool'},
}


def _enabled():
    """List the options that switch the interfaces on."""
    chosen = {'enabled_hardware_types': set(_INTERFACES),
              'enabled_bios_interfaces': {'no-bios'},
              'enabled_inspect_interfaces': {'no-inspect'},
              'enabled_vendor_interfaces': {'no-vendor'}}
    for interfaces in _INTERFACES.values():
        for kind, name in interfaces.items():
            chosen.setdefault(f'enabled_{kind}s', set()).add(name)
    chosen.update({f'enabled_{kind}_interfaces': {name} for kind, name in (
        ('console', 'no-console'), ('deploy', 'ramdisk'),
        ('firmware', 'no-firmware'), ('network', 'noop'),
        ('raid', 'no-raid'), ('rescue', 'no-rescue'), ('storage', 'noop'))})
    return {option: ','.join(sorted(names))
            for option, names in chosen.items()}


class Ironic(fixtures.Fixture):
    """A running Ironic.

    :param config: dictionary of sections of further options.

    ``url`` is its API, ``baremetal`` a proxy of openstacksdk to it.
    """

    def __init__(self, config=None):
        super().__init__()
        self.config = config or {}

    def _setUp(self):
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        port = self.useFixture(ports.Port()).number
        self.url = 'http://127.0.0.1:%d' % port
        config = configparser.ConfigParser(interpolation=None)
        config.read_dict(self._options(port))
        config.read_dict(self.config)
        config_file = self.home / 'ironic.conf'
        with open(config_file, 'w') as stream:
            config.write(stream)
        for folder in 'tmp', 'state', 'http':
            (self.home / folder).mkdir()
        self.env = process.environment(
            self.home, {'OS_AUTH_TYPE': 'none', 'OS_ENDPOINT': self.url})
        subprocess.run(
            [process.BIN / 'ironic-dbsync', '--config-file', config_file,
             'create_schema'], env=self.env, check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=120)
        self.process = self.useFixture(process.Process(
            ['ironic', '--config-file', config_file],
            ready='Created RPC server', timeout=60, env=self.env,
            cwd=self.home))
        self._wait_api(port)
        connection = openstack.connection.Connection(
            auth_type='none', auth={'endpoint': self.url},
            baremetal_endpoint_override=self.url)
        self.addCleanup(connection.close)
        self.baremetal = connection.baremetal

    def _options(self, port):
        home = self.home
        return {
            'DEFAULT': {
                'auth_strategy': 'noauth', 'rpc_transport': 'none',
                'host': 'functional', 'my_ip': '127.0.0.1',
                'default_deploy_interface': 'ramdisk',
                'tempdir': home / 'tmp', 'state_path': home / 'state',
                **_enabled()},
            'api': {'host_ip': '127.0.0.1', 'port': port, 'api_workers': 1},
            'conductor': {
                'automated_clean': 'false',
                # What a guest does by itself shall be seen soon, and not
                # be undone.
                'sync_power_state_interval': 2,
                'force_power_state_during_sync': 'false',
                'power_state_change_timeout': 60,
                'soft_power_off_timeout': 60,
                'node_locked_retry_attempts': 50},
            'database': {
                'connection': f"sqlite:///{home / 'ironic.sqlite'}"},
            'service_catalog': {'auth_type': 'none',
                                'endpoint_override': self.url},
            'ipmi': {'min_command_interval': 1, 'command_retry_timeout': 30},
            'redfish': {'connection_retry_interval': 1},
            'inventory': {'data_backend': 'database'},
            'oslo_concurrency': {'lock_path': home / 'lock'},
            'deploy': {'http_root': home / 'http',
                       'iso_master_path': home / 'iso-master',
                       'http_url': 'http://127.0.0.1:1'},
            'pxe': {'tftp_root': home / 'tftp',
                    'tftp_master_path': home / 'tftp-master',
                    'images_path': home / 'images',
                    'instance_master_path': home / 'instance-master'},
        }

    def _wait_api(self, port, timeout=30):
        """Wait until the API, the last to start, listens."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                socket.create_connection(('127.0.0.1', port), 1).close()
                return
            except ConnectionError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)

    def enrol(self, name, driver, driver_info):
        """Make a node and have it managed.

        :param driver: ``redfish`` or ``ipmi``.
        :param driver_info: dictionary, where the BMC is.
        :returns: the node, ``manageable``.
        """
        node = self.baremetal.create_node(
            name=name, driver=driver, driver_info=driver_info,
            provision_state='enroll', **_INTERFACES[driver])
        return self.provision(node, 'manage', 'manageable')

    def provision(self, node, verb, state, timeout=60):
        """Have a node change its provision state, and wait for it."""
        self.baremetal.set_node_provision_state(node, verb)
        return self.wait(node, lambda now: now.provision_state == state,
                         timeout)

    def power(self, node, target, state):
        """Have a node change its power state, and wait until it has.

        :param target: ``power on``, ``power off``, ``rebooting``, ``soft
            power off`` or ``soft rebooting``.
        :param state: ``power on`` or ``power off``.
        """
        self.baremetal.set_node_power_state(node, target)
        return self.wait(node, lambda now: now.power_state == state)

    def wait(self, node, condition, timeout=60):
        """Wait until a node is at rest, and as wanted.

        Ironic's API has no watch, so this asks again and again.

        :param condition: called with the node.
        :returns: the node.
        :raises AssertionError: it did not come to that, or to an error.
        """
        deadline = time.monotonic() + timeout
        while True:
            now = self.baremetal.get_node(node.id)
            busy = (now.target_power_state or now.target_provision_state
                    or now.reservation)
            if not busy and condition(now):
                return now
            failed = now.provision_state.endswith('failed')
            if failed or now.last_error and not busy:
                raise AssertionError(f'{now.name}: {now.last_error}')
            if time.monotonic() >= deadline:
                raise AssertionError(
                    '%s is not as wanted after %g s: %s, %s; on its way to '
                    '%s, %s' % (now.name, timeout, now.provision_state,
                                now.power_state, now.target_provision_state,
                                now.target_power_state))
            time.sleep(0.1)

    def command(self, *words):
        """Run ``baremetal``; returns what it printed."""
        return subprocess.run(
            [process.BIN / 'baremetal', *words], env=self.env, check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            timeout=60).stdout
