# SPDX-License-Identifier: Apache-2.0
"""The table of Redfish resources, and their installation into sushy-emulator.

To add a resource, write a module in `resources` with a tuple ``ROUTES`` (see
`protocol.routing`) and add it to `MODULES`. Checks before and processing after
a view are the same for all routes, including sushy-emulator's own.
"""

from __future__ import annotations

from collections import abc
import typing

import flask

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import authorization
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import etags
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import postprocessing
from sushy_kubevirt.redfish.protocol import request_validation
from sushy_kubevirt.redfish.protocol import response_cache
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.protocol import system_access
from sushy_kubevirt.redfish.resources import account_service
from sushy_kubevirt.redfish.resources import bios
from sushy_kubevirt.redfish.resources import boot_options
from sushy_kubevirt.redfish.resources import certificates
from sushy_kubevirt.redfish.resources import chassis
from sushy_kubevirt.redfish.resources import computer_system
from sushy_kubevirt.redfish.resources import consoles
from sushy_kubevirt.redfish.resources import event_destination
from sushy_kubevirt.redfish.resources import event_service
from sushy_kubevirt.redfish.resources import hardware
from sushy_kubevirt.redfish.resources import log_services
from sushy_kubevirt.redfish.resources import manager
from sushy_kubevirt.redfish.resources import manager_accounts
from sushy_kubevirt.redfish.resources import manager_interfaces
from sushy_kubevirt.redfish.resources import metadata
from sushy_kubevirt.redfish.resources import registries
from sushy_kubevirt.redfish.resources import sensors
from sushy_kubevirt.redfish.resources import service_root
from sushy_kubevirt.redfish.resources import session_service
from sushy_kubevirt.redfish.resources import storage
from sushy_kubevirt.redfish.resources import tasks
from sushy_kubevirt.redfish.resources import update_service
from sushy_kubevirt.redfish.resources import virtual_media
from sushy_kubevirt.redfish.resources import web_page

if typing.TYPE_CHECKING:
    from werkzeug import wrappers

#: Modules of `resources` that serve a route; each has ``ROUTES``.
MODULES = (
    account_service,
    bios,
    boot_options,
    certificates,
    chassis,
    computer_system,
    consoles,
    event_destination,
    event_service,
    hardware,
    log_services,
    manager,
    manager_interfaces,
    manager_accounts,
    metadata,
    registries,
    sensors,
    service_root,
    update_service,
    session_service,
    storage,
    tasks,
    virtual_media,
    web_page,
)


def _adapt(route: routing.Route) -> abc.Callable[..., flask.Response]:
    """Make a view for Flask of those of a route.

    The view of a system receives the machine that
    `system_access.resolve_system` found instead of the identity in the URL.

    :returns: a function that answers 404 below the route's feature set
    """
    least = routing.FEATURE_SETS.index(route.feature)

    def adapted(identity: str | None = None, **arguments: str
                ) -> flask.Response:
        if routing.feature_level() < least:
            raise error_responses.uri_not_found()
        method = flask.request.method
        view = route.views['GET' if method == 'HEAD' else method]
        subject = identity if flask.g.machine is None else flask.g.machine
        answer = view(*() if subject is None else (subject,), **arguments)
        if answer is None:
            return responses.no_content()
        return (responses.Document(answer) if isinstance(answer, dict)
                else answer)

    return adapted


# Checks before every view, in this order. The first that returns a response
# ends the request.
_CHECKS: tuple[abc.Callable[[], wrappers.Response | None], ...] = (
    authentication.authenticate,
    authorization.check,
    request_validation.check,
    system_access.resolve_system,
    payload.check,
    request_validation.parse_query,
    etags.check_preconditions,
    response_cache.note_conditions,
)


def _check() -> wrappers.Response | None:
    """Note the route and run all checks (Flask's before_request).

    One function, because Flask adds overhead for each one registered.

    :returns: the response of the check that answered
    """
    request = application.request()
    if request.url_rule is not None:
        request.environ[routing.RULE] = request.url_rule.rule
    for check in _CHECKS:
        answer = check()
        if answer is not None:
            return answer
    return None


def _routes() -> list[routing.Route]:
    return [route for module in MODULES for route in module.ROUTES]


def replaced_endpoints() -> set[str]:
    """Return sushy-emulator's endpoints that are replaced here."""
    return {route.endpoint for route in _routes() if route.rule is None}


def install(app: application.Application) -> None:
    """Install views, checks and error handler into an application.

    :param app: an application before its first request
    :raises: `RuntimeError` if this sushy-tools lacks an expected endpoint
    """
    moved = sorted(replaced_endpoints() - set(app.view_functions))
    if moved:
        raise RuntimeError(
            f"The installed sushy-tools has no endpoint {', '.join(moved)}; "
            'install the release named in sushy_kubevirt.emulator.plugin')
    for route in _routes():
        if route.rule is None:
            app.view_functions[route.endpoint] = _adapt(route)
        else:
            app.add_url_rule(route.rule, route.endpoint, _adapt(route),
                             methods=list(route.views),
                             websocket=route.websocket)
    routing.Routes(app, MODULES)
    app.before_request(_check)
    app.after_request(postprocessing.finish_response)
    # Replaces upstream's handler, which sends a single message and the text
    # of the Python exception.
    app.register_error_handler(Exception, error_responses.error_response)
