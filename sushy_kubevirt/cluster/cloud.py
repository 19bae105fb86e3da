# SPDX-License-Identifier: Apache-2.0
"""The connection to OpenStack, by the user's clouds.yaml."""

from __future__ import annotations

import contextlib
import os

import keystoneauth1.exceptions
import openstack
import openstack.connection
import openstack.exceptions

from sushy_kubevirt.cluster import problems


def connect_if_configured(
        name: str | None = None) -> openstack.connection.Connection | None:
    """Connect to a cloud if the user has one.

    :param name: see `connect`
    :raises: `problems.ServiceError` if a cloud is named that is not
        configured
    """
    try:
        return connect(name)
    except problems.ServiceError:
        if name or os.environ.get('OS_CLOUD'):
            raise
        return None


def connect(name: str | None = None) -> openstack.connection.Connection:
    """Connect to a cloud.

    Nothing is sent before the connection is used.

    :param name: of a cloud in clouds.yaml; None for that of ``OS_CLOUD``, or
        the only one
    :raises: `problems.ServiceError` if there is no such configuration
    """
    with errors('', '. Set OS_CLOUD to the name of a cloud in clouds.yaml, '
                'and OS_CLIENT_CONFIG_FILE to its path, if it is neither here '
                'nor in ~/.config/openstack'):
        return openstack.connect(cloud=name, app_name='sushy-kubevirt')


def errors(what: str, advice: str = ''
           ) -> contextlib.AbstractContextManager[None]:
    """Raise openstacksdk's errors as `problems.service_errors` does."""
    return problems.service_errors(what, advice, (
        openstack.exceptions.SDKException,
        keystoneauth1.exceptions.ClientException))
