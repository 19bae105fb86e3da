# SPDX-License-Identifier: Apache-2.0
"""The configuration of each service, as sections of options.

Intervals are short to keep tests short; the services' behaviour is not
changed. All processes log to standard error.
"""

import configparser
import dataclasses
import pathlib

#: Types of the services in the catalog.
TYPES = {'keystone': 'identity', 'placement': 'placement',
         'glance': 'image', 'neutron': 'network', 'nova': 'compute',
         'ironic': 'baremetal'}

#: Paths below a service's address in the catalog.
PATHS = {'keystone': '/v3', 'nova': '/v2.1'}

#: The account of the services, and that of users.
SERVICE, ADMIN, PASSWORD = 'service', 'admin', 'not-a-secret'

REGION = 'RegionOne'

#: The provider network of servers; Ironic uses it to deploy and clean, too.
NETWORK = 'provider'


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the services are.

    :param home: folder of their files
    :param share: folder of the files that the packages installed, ``etc``
    :param ports: dict of names of services to their TCP ports
    :param database: function of a name that returns a database's URL
    :param messages: URL of the message queue
    :param images: URL of the web server whose files are in `published`
    :param switches: text, sections of networking-generic-switch
    """

    home: pathlib.Path
    share: pathlib.Path
    ports: dict
    database: object
    messages: str
    images: str
    switches: str

    @property
    def published(self):
        """Folder of images for BMCs."""
        return self.home / 'http'

    def url(self, name):
        """Return the address of a service's API."""
        return f'http://127.0.0.1:{self.ports[name]}{PATHS.get(name, "")}'


def write(place):
    """Write the configuration of all services.

    :param place: `Place`
    """
    for function in keystone, placement, glance, neutron, nova, ironic:
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_dict(function(place))
        if function is neutron:
            parser.read_string(place.switches)
        with open(path(place.home, function.__name__), 'w') as stream:
            parser.write(stream)


def path(home, name):
    """Return the path of a service's configuration file."""
    # Glance's API reads a file of this name only.
    return home / f"{'glance-api' if name == 'glance' else name}.conf"


def keystone(place):
    keys = {'key_repository': place.home / 'fernet'}
    return {
        **_common(place, 'keystone'),
        'token': {'provider': 'fernet'},
        'fernet_tokens': keys, 'fernet_receipts': keys,
        # Hashes take 0.3 s by default.
        'identity': {'password_hash_rounds': 4},
    }


def placement(place):
    return {
        'DEFAULT': {'use_stderr': 'true'},
        'placement_database': {'connection': place.database('placement')},
        'api': {'auth_strategy': 'keystone'},
        'keystone_authtoken': _tokens(place),
    }


def glance(place):
    folder = place.home / 'glance'
    stores = {name: folder / name for name in (
        'files', 'os_glance_staging_store', 'os_glance_tasks_store')}
    return {
        **_common(place, 'glance', enabled_backends='files:file'),
        'glance_store': {'default_backend': 'files'},
        **{name: {'filesystem_store_datadir': where}
           for name, where in stores.items()},
        'paste_deploy': {
            'flavor': 'keystone',
            'config_file': place.share / 'glance/glance-api-paste.ini'},
        # The image that a server boots names an ISO, and has no content.
        'image_format': {'require_image_format_match': 'false'},
        'keystone_authtoken': _tokens(place),
    }


def neutron(place):
    return {
        **_common(
            place, 'neutron', core_plugin='ml2', service_plugins='',
            auth_strategy='keystone', state_path=place.home / 'neutron',
            api_paste_config=place.share / 'neutron/api-paste.ini'),
        'ml2': {'type_drivers': 'flat', 'tenant_network_types': '',
                'mechanism_drivers': 'genericswitch'},
        'nova': {**_account(place), 'region_name': REGION},
        'keystone_authtoken': _tokens(place),
    }


def nova(place):
    regional = {**_account(place), 'region_name': REGION}
    # With a project, Nova sees no node of others.
    system = {key: value for key, value in regional.items()
              if not key.startswith('project_')}
    return {
        **_common(
            place, 'nova', compute_driver='ironic.IronicDriver',
            host='tests', my_ip='127.0.0.1', use_cow_images='false',
            state_path=place.home / 'nova', update_resources_interval=10),
        'api_database': {'connection': place.database('nova_api'),
                         'max_pool_size': 4},
        'api': {'auth_strategy': 'keystone'},
        'wsgi': {'api_paste_config': place.share / 'nova/api-paste.ini'},
        'keystone_authtoken': _tokens(place),
        'service_user': {'send_service_user_token': 'true',
                         **_account(place)},
        'placement': regional, 'neutron': regional, 'glance': regional,
        'ironic': {**system, 'system_scope': 'all', 'api_max_retries': 300,
                   'api_retry_interval': 1},
        'scheduler': {'discover_hosts_in_cells_interval': 5, 'workers': 1},
        'conductor': {'workers': 1},
        'vnc': {'enabled': 'false'},
    }


def ironic(place):
    folder = place.home / 'ironic'
    chosen = {
        'hardware_types': 'redfish', 'boot_interfaces':
        'redfish-virtual-media', 'deploy_interfaces': 'ramdisk',
        'management_interfaces': 'redfish', 'power_interfaces': 'redfish',
        'network_interfaces': 'neutron,noop', 'storage_interfaces': 'noop',
        **{f'{kind}_interfaces': f'no-{kind}' for kind in (
            'bios', 'console', 'firmware', 'inspect', 'raid', 'rescue',
            'vendor')}}
    services = {name: {**_account(place), 'region_name': REGION} for name in (
        'glance', 'neutron', 'nova', 'service_catalog', 'inspector')}
    services['neutron'] |= {
        f'{kind}_network': NETWORK for kind in ('cleaning', 'provisioning')}
    services['neutron']['port_setup_delay'] = 0
    return {
        **_common(
            place, 'ironic', host='tests', my_ip='127.0.0.1',
            # API and conductor are one process.
            rpc_transport='none', auth_strategy='keystone',
            tempdir=folder, state_path=folder,
            **{f'enabled_{kind}': names for kind, names in chosen.items()},
            default_network_interface='neutron'),
        'api': {'host_ip': '127.0.0.1', 'port': place.ports['ironic'],
                'api_workers': 1},
        'conductor': {'automated_clean': 'false'},
        'deploy': {'http_url': place.images, 'http_root': place.published,
                   'iso_master_path': folder / 'iso-master'},
        'dhcp': {'dhcp_provider': 'none'},
        'redfish': {'connection_retry_interval': 1},
        'pxe': {'tftp_root': folder / 'tftp',
                'tftp_master_path': folder / 'tftp-master',
                'images_path': folder / 'images',
                'instance_master_path': folder / 'instance-master'},
        'inventory': {'data_backend': 'none'},
        'keystone_authtoken': _tokens(place),
        **services,
    }


def clouds(place):
    """Make ``clouds.yaml`` of an administrator.

    :returns: dict
    """
    account = _account(place, ADMIN, ADMIN)
    del account['auth_type']
    return {'clouds': {'tests': {'auth': account, 'region_name': REGION}}}


def _common(place, name, **options):
    return {
        'DEFAULT': {'use_stderr': 'true', 'transport_url': place.messages,
                    **options},
        'database': {'connection': place.database(name), 'max_pool_size': 4},
        'oslo_concurrency': {'lock_path': place.home / 'lock'},
        'oslo_messaging_notifications': {'driver': 'noop'},
    }


def _account(place, user=SERVICE, project=SERVICE):
    return {'auth_type': 'password', 'auth_url': place.url('keystone'),
            'username': user, 'password': PASSWORD,
            'user_domain_id': 'default', 'project_name': project,
            'project_domain_id': 'default'}


def _tokens(place):
    return {**_account(place), 'service_token_roles': 'service',
            'service_token_roles_required': 'true',
            'www_authenticate_uri': place.url('keystone')}
