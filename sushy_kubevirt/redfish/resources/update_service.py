# SPDX-License-Identifier: Apache-2.0
"""UpdateService: not available, because firmware is part of KubeVirt.

Replaces sushy-emulator's views, which simulate an update by incrementing a
version number and return 500 for an invalid request.
"""

from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import routing


def no_update_service():
    """GET /redfish/v1/UpdateService: 404"""
    raise error_responses.uri_not_found()


def simple_update():
    """POST …/Actions/UpdateService.SimpleUpdate: 501"""
    raise error_responses.RedfishError(501, messages.message(
        'ActionNotSupported', 'UpdateService.SimpleUpdate',
        detail='Firmware comes with KubeVirt and is updated with it.'))


ROUTES = (
    routing.replace(
        'UpdateService.update_service_resource',
        no_update_service),
    routing.replace('UpdateService.update_service_simple_update',
                    simple_update),
)
