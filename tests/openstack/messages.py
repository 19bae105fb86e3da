# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ as a fixture.

Its node has a name, ports and files of its own, so that several run at the
same time, and beside one of the system.
"""

import pathlib

import fixtures

from kubevirt_sandbox.testing import ports
from kubevirt_sandbox.testing import process

#: The script that Debian's own starts as another user.
SERVER = '/usr/lib/rabbitmq/bin/rabbitmq-server'


class MessageQueue(fixtures.Fixture):
    """A running RabbitMQ; ``url`` is what oslo.messaging connects to.

    It may not be ready after `setUp`: call `wait`.
    """

    def _setUp(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        amqp, names, nodes = (self.useFixture(ports.Port()).number
                              for _ in range(3))
        self.url = f'rabbit://guest:guest@127.0.0.1:{amqp}/'
        plugins = home / 'plugins'
        plugins.write_text('[].')
        self.process = self.useFixture(process.Process(
            [SERVER], env=process.environment(home, {
                'ERL_EPMD_ADDRESS': '127.0.0.1', 'ERL_EPMD_PORT': names,
                'RABBITMQ_NODENAME': f'tests-{amqp}@localhost',
                'RABBITMQ_NODE_IP_ADDRESS': '127.0.0.1',
                'RABBITMQ_NODE_PORT': amqp, 'RABBITMQ_DIST_PORT': nodes,
                'RABBITMQ_MNESIA_BASE': home / 'mnesia',
                'RABBITMQ_LOG_BASE': home / 'log', 'RABBITMQ_LOGS': '-',
                'RABBITMQ_CONFIG_FILE': home / 'none',
                'RABBITMQ_CONF_ENV_FILE': home / 'none',
                'RABBITMQ_ENABLED_PLUGINS_FILE': plugins,
                # One scheduler, which does not wait for work in a loop.
                'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                    '-kernel inet_dist_use_interface {127,0,0,1} '
                    '+S 1:1 +sbwt none'})))

    def wait(self):
        """Wait until it is ready."""
        self.process.wait_output('Server startup complete', 120)
