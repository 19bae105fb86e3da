# SPDX-License-Identifier: Apache-2.0
"""Kernels and ramdisks of the deploy agent: names in Glance to UUIDs."""

from __future__ import annotations

import keystoneauth1.exceptions
import openstack.exceptions

from sushy_kubevirt.cluster import problems


def resolve(connection, names):
    """Find images by name.

    :param connection: an `openstack.connection.Connection`
    :param names: set of text, as of `nodes.image_names`
    :returns: dict of name to UUID
    :raises: `problems.ServiceError` if Glance fails, or does not have exactly
        one image of a name
    """
    found = {}
    for name in sorted(names):
        try:
            uuids = [one.id for one in connection.image.images(name=name)]
        except (keystoneauth1.exceptions.ClientException,
                openstack.exceptions.SDKException) as error:
            raise problems.ServiceError(
                f'Glance cannot say which image is {name}: {error}. Without '
                'Glance, give a URL') from error
        if len(uuids) != 1:
            raise problems.ServiceError(
                f'Glance has {len(uuids) or "no"} images named {name}; '
                'deploy_kernel and deploy_ramdisk need exactly one, or a UUID '
                'or URL')
        found[name] = uuids[0]
    return found
