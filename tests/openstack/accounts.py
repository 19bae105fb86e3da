# SPDX-License-Identifier: Apache-2.0
"""Keystone's first contents: its keys, the catalog, the services' account."""

import base64
import os

from tests.openstack import configuration


def write_keys(place):
    """Make the keys of tokens, before Keystone starts.

    :param place: `configuration.Place`
    """
    folder = place.home / 'fernet'
    folder.mkdir(mode=0o700)
    # The next key and the current one.
    for number in 0, 1:
        (folder / str(number)).write_bytes(
            base64.urlsafe_b64encode(os.urandom(32)))


def create(place, identity):
    """Make the account of all services, and the catalog.

    :param place: `configuration.Place`
    :param identity: openstacksdk's proxy for Keystone
    """
    name = configuration.SERVICE
    project = identity.create_project(name=name, domain_id='default')
    user = identity.create_user(
        name=name, domain_id='default', password=configuration.PASSWORD)
    roles = {one.name: one for one in identity.roles()}
    for role in 'admin', 'service':
        identity.assign_project_role_to_user(project, user, roles[role])
    # Ironic and Nova see the nodes of all projects.
    identity.assign_system_role_to_user(user, roles['admin'], 'all')
    identity.create_region(id=configuration.REGION)
    for name, kind in configuration.TYPES.items():
        service = identity.create_service(name=name, type=kind)
        for interface in 'public', 'internal':
            identity.create_endpoint(
                service_id=service.id, interface=interface,
                region_id=configuration.REGION, url=place.url(name))
