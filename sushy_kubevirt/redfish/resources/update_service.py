# SPDX-License-Identifier: Apache-2.0
"""Upstream's services where a VM has nothing for them to serve.

What upstream's views would pretend (a firmware update that raises a number)
or answer with 500 on a client's mistake is refused here in clear words.
"""

from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import routing


def no_update_service():
    """/redfish/v1/UpdateService: there is none"""
    raise errors.uri_not_found()


def simple_update():
    """POST …/Actions/UpdateService.SimpleUpdate: refused, whatever for"""
    raise errors.RedfishError(501, messages.message(
        'ActionNotSupported', 'UpdateService.SimpleUpdate',
        detail='Firmware comes with KubeVirt and is updated with it.'))


ROUTES = (
    routing.replace(
        'UpdateService.update_service_resource',
        no_update_service),
    routing.replace('UpdateService.update_service_simple_update',
                    simple_update),
)
