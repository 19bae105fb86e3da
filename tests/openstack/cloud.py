# SPDX-License-Identifier: Apache-2.0
"""A complete OpenStack as a fixture."""

import pathlib
import shutil
import socket
import time

import fixtures
import openstack
import yaml

from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import webserver
from tests.openstack import accounts
from tests.openstack import configuration
from tests.openstack import database
from tests.openstack import messages
from tests.openstack import schemas
from tests.openstack import services

#: Programs without an API, and the service of each.
_DAEMONS = {'ironic': 'ironic', 'nova-conductor': 'nova',
            'nova-scheduler': 'nova', 'nova-compute': 'nova'}


class Cloud(fixtures.Fixture):
    """Keystone, Placement, Glance, Neutron, Nova and Ironic.

    :param switches: text, sections of networking-generic-switch
    :param physical_network: that of the network `configuration.NETWORK`

    ``clouds_file`` is the path of a ``clouds.yaml``, and ``connection`` an
    `openstack.connection.Connection`, of an administrator. ``network`` is the
    only network of servers. Each program is an attribute, as ``nova_compute``.
    """

    def __init__(self, switches, physical_network):
        super().__init__()
        self._switches = switches
        self._physical_network = physical_network

    def _setUp(self):
        template = schemas.template()
        self.messages = self.useFixture(messages.MessageQueue())
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        files = shutil.copytree(template, home / 'database')
        self.database = self.useFixture(database.Database(files))
        (home / 'http').mkdir()
        images = self.useFixture(webserver.files(home / 'http'))
        self.place = configuration.Place(
            home, services.FOLDER / 'etc',
            {name: self.useFixture(ports.Port()).number
             for name in schemas.COMMANDS},
            self.database.url, self.messages.url, images.url, self._switches)
        configuration.write(self.place)
        accounts.write_keys(self.place)
        for name in services.APPLICATIONS:
            self._start(name, services.api(self.place, name))
        self._wait('keystone')
        self.clouds_file = home / 'clouds.yaml'
        self.clouds_file.write_text(
            yaml.safe_dump(configuration.clouds(self.place)))
        # The catalog is empty at first.
        accounts.create(self.place, self._connect(
            identity_endpoint_override=self.place.url('keystone')).identity)
        self.connection = self._connect()
        # Programs that read the catalog keep it, so it must be complete.
        self.messages.wait()
        for program, service in _DAEMONS.items():
            if program == 'nova-compute':
                # On a host without a record in Nova's database it ends when
                # Ironic does not answer.
                self._wait('ironic')
            self._start(program, services.daemon(
                self.place, program, service))
        for name in configuration.TYPES:
            self._wait(name)
        self.network = self.connection.network.create_network(
            name=configuration.NETWORK, provider_network_type='flat',
            provider_physical_network=self._physical_network)
        self.connection.network.create_subnet(
            network_id=self.network.id, ip_version=4, cidr='192.0.2.0/24',
            gateway_ip=None, is_dhcp_enabled=False)

    def _start(self, name, program):
        setattr(self, name.replace('-', '_'), self.useFixture(program))

    def _connect(self, **options):
        config = openstack.config.OpenStackConfig(
            config_files=[str(self.clouds_file)], load_envvars=False)
        made = openstack.connection.Connection(
            config=config.get_one(cloud='tests', **options))
        self.addCleanup(made.close)
        return made

    def _wait(self, name, timeout=90):
        """Wait until an API listens."""
        deadline = time.monotonic() + timeout
        while True:
            program = getattr(self, name)
            try:
                socket.create_connection(
                    ('127.0.0.1', self.place.ports[name]), 1).close()
                return
            except OSError as exc:
                if program.returncode is not None or (
                        time.monotonic() >= deadline):
                    raise RuntimeError(f'{name} does not listen: '
                                       f'{program.tail()}') from exc
                time.sleep(0.05)
