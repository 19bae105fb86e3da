# SPDX-License-Identifier: Apache-2.0
"""Kernels and ramdisks of the deploy agent: names in Glance to UUIDs."""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.cluster import cloud
from sushy_kubevirt.cluster import problems

if typing.TYPE_CHECKING:
    import openstack.connection


def resolve(connection: openstack.connection.Connection,
            names: abc.Iterable[str]) -> dict[str, str]:
    """Find images by name.

    :param names: as of `nodes.image_names`
    :returns: UUIDs by name
    :raises: `problems.ServiceError` if Glance fails, or does not have exactly
        one image of a name
    """
    resolved = {}
    for name in sorted(names):
        with cloud.errors(f'Glance cannot say which image is {name}: ',
                          '. Without Glance, give a URL'):
            uuids = [image.id for image in connection.image.images(name=name)]
        if len(uuids) != 1:
            raise problems.ServiceError(
                f'Glance has {len(uuids) or "no"} images named {name}; '
                'deploy_kernel and deploy_ramdisk need exactly one, or a UUID '
                'or URL')
        resolved[name] = uuids[0]
    return resolved
