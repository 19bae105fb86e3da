# SPDX-License-Identifier: Apache-2.0
"""The programs of OpenStack's services, as fixtures."""

import os

from kubevirt_sandbox.testing import process
from tests.fixtures import environments
from tests.fixtures import ironic
from tests.openstack import configuration

#: Folder of the packages, found before a test has a home of its own.
FOLDER = environments.ENVIRONMENTS['openstack'].folder
BIN = FOLDER / 'bin'

#: The applications that gunicorn serves. Ironic has a server of its own.
APPLICATIONS = {
    'keystone': 'keystone.wsgi.api:application',
    'placement': 'placement.wsgi.api:application',
    'glance': 'glance.wsgi.api:application',
    'neutron': 'neutron.wsgi.api:application',
    'nova': 'nova.wsgi.osapi_compute:application',
}

# Settings of gunicorn. They are in a file, as applications read the command
# line as their own. By default it closes connections that are idle for two
# seconds, at the moment at which a client uses them again.
_GUNICORN = '''\
wsgi_app = {application!r}
bind = '127.0.0.1:{port}'
worker_class = 'gthread'
threads = 8
timeout = 120
keepalive = 600
control_socket_disable = True
'''


def environment(place):
    """Make the environment variables of all services and their commands.

    :param place: `configuration.Place`
    :returns: dict
    """
    files = {name: str(configuration.path(place.home, name))
             for name in APPLICATIONS}
    # The first of Nova's describes the pipeline of its API.
    files['nova'] = f"{place.share / 'nova/api-paste.ini'};{files['nova']}"
    found = {'PYTHONWARNINGS': 'ignore', **ironic.ENVIRONMENT,
             'PATH': f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    for name in APPLICATIONS:
        found[f'OS_{name.upper()}_CONFIG_DIR'] = place.home
        found[f'OS_{name.upper()}_CONFIG_FILES'] = files[name]
    return process.environment(place.home, found)


def api(place, name):
    """Make the API of a service; it may not be ready after its `setUp`.

    :param place: `configuration.Place`
    :param name: of `APPLICATIONS`
    :returns: `process.Process`
    """
    settings = place.home / f'{name}.py'
    settings.write_text(_GUNICORN.format(
        application=APPLICATIONS[name], port=place.ports[name]))
    return process.Process(
        [BIN / 'gunicorn'], env={
            **environment(place),
            'GUNICORN_CMD_ARGS': f'--config {settings}'})


def daemon(place, program, service):
    """Make another program of a service; likewise.

    :param program: such as ``nova-compute``
    :param service: whose configuration it has
    :returns: `process.Process`
    """
    return process.Process(
        [BIN / program, '--config-file',
         configuration.path(place.home, service)], env=environment(place))
