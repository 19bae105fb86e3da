# SPDX-License-Identifier: Apache-2.0
"""The databases of the services, as they are after an installation."""

from concurrent import futures
import hashlib
import pathlib
import subprocess
import tempfile

from tests.openstack import accounts
from tests.openstack import configuration
from tests.openstack import database
from tests.openstack import services

NAMES = ('keystone', 'placement', 'glance', 'neutron', 'nova', 'nova_api',
         'nova_cell0', 'ironic')

# Nova keeps addresses in a table. Those in its configuration file replace
# these words.
_CELL = '{scheme}://{username}@{hostname}/{path}?{query}'
_CELL0 = _CELL.replace('{path}', 'nova_cell0')
_MESSAGES = '{scheme}://{username}:{password}@{hostname}:{port}/{path}'

#: What is run for each service, one after the other.
COMMANDS = {
    'keystone': ['keystone-manage db_sync',
                 'keystone-manage bootstrap '
                 f'--bootstrap-username {configuration.ADMIN} '
                 f'--bootstrap-project-name {configuration.ADMIN} '
                 f'--bootstrap-password {configuration.PASSWORD}'],
    'placement': ['placement-manage db sync'],
    'glance': ['glance-manage db_sync'],
    'neutron': ['neutron-db-manage upgrade heads'],
    'nova': ['nova-manage api_db sync',
             f'nova-manage cell_v2 map_cell0 --database_connection {_CELL0}',
             'nova-manage db sync',
             'nova-manage cell_v2 create_cell --name cell1 '
             f'--database_connection {_CELL} --transport-url {_MESSAGES}'],
    'ironic': ['ironic-dbsync create_schema'],
}


def template():
    """Return a folder with the files of a MariaDB that has all tables, and
    Keystone's administrator.

    It is made once for each version of OpenStack and of this module.
    """
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    digest.update(pathlib.Path(database.__file__).read_bytes())
    digest.update(subprocess.run(
        [database.SERVER, '--no-defaults', '--version'],
        stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout)
    return database.template(
        f'{services.FOLDER.name}-tables-'
        f'{digest.hexdigest()[:12]}', _fill)


def _fill(server):
    server.create(NAMES)
    with tempfile.TemporaryDirectory() as folder:
        # Nothing connects to these addresses.
        place = configuration.Place(
            pathlib.Path(folder), services.FOLDER / 'etc',
            dict.fromkeys(COMMANDS, 1), server.url,
            'rabbit://guest:guest@127.0.0.1:1/', 'http://127.0.0.1:1', '')
        configuration.write(place)
        accounts.write_keys(place)
        with futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda name: _run(place, name), COMMANDS))


def _run(place, name):
    for command in COMMANDS[name]:
        program, *words = command.split()
        done = subprocess.run(
            [services.BIN / program, '--config-file',
             configuration.path(place.home, name), *words],
            env=services.environment(place), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=300)
        if done.returncode != 0:
            raise RuntimeError(
                f'{command}: exit code {done.returncode}: '
                f'{done.stdout[-3000:]}')
