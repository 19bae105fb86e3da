# SPDX-License-Identifier: Apache-2.0
"""Resolve the system that a request is about, and check access to it.

`resolve_system` runs before every view, including sushy-emulator's, and looks
at the matched URL rule: everything below ``/redfish/v1/Systems/<...>``,
``/redfish/v1/Managers/<...>`` or ``/redfish/v1/Chassis/<...>`` belongs to the
system named there (manager and chassis have the system's Id). New routes are
therefore covered without a change. `KubeVirtDriver.machine` decides which VMs
may be reached.

A system is served under its Id (`services.system_id`) and under its UUID. If
a single VM is served, as in the pod of a BMC, the names that KubeVirtBMC uses
for the manager and the CD-ROM work as well. These aliases are not redirects,
because many clients do not follow a redirect of a POST. Names of VMs are
redirected to the Id.
"""

from __future__ import annotations

import functools
import typing

import flask

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.services import system_id

if typing.TYPE_CHECKING:
    from wsgiref import types

    from werkzeug import wrappers

    from sushy_kubevirt.machine import machine

_PREFIXES = ('/redfish/v1/Systems/<', '/redfish/v1/Managers/<',
             '/redfish/v1/Chassis/<')

#: KubeVirtBMC's name for the manager: collection, alias.
_MANAGER_ALIAS = ('/redfish/v1/Managers', 'BMC')

#: KubeVirtBMC's name for the CD-ROM: view argument, alias, our name.
_DEVICE = ('device', 'CD1', 'Cd')


@functools.cache
def system_argument(rule: str) -> str | None:
    """Find the view argument that names the system.

    :param rule: URL rule
    """
    for prefix in _PREFIXES:
        if rule.startswith(prefix):
            argument = rule[len(prefix):].partition('>')[0]
            return argument.rpartition(':')[2]
    return None


def resolve_system() -> wrappers.Response | None:
    """Store the machine in ``flask.g.machine``, None for other resources.

    For Flask's before_request.

    :returns: a redirect from a name to the Id
    :raises: `MachineNotFound` and other errors of `KubeVirtDriver.machine`
    """
    request = application.request()
    about = flask.g._get_current_object()
    about.machine = None
    rule, arguments = request.url_rule, request.view_args
    if rule is None or arguments is None:
        return None
    argument = system_argument(rule.rule)
    if argument is None:
        return None
    identity = arguments[argument]
    if application.current().systems.only is not None:
        name, alias, device = _DEVICE
        if arguments.get(name) == alias:
            arguments[name] = device
    collection = rule.rule.partition('/<')[0]
    named = find_machine(collection, identity)
    if _is_only(collection, identity):
        # For sushy-emulator's own views, which look up the identity.
        arguments[argument] = named.uuid
    elif identity.lower() != named.uuid:
        return _redirect(
            rule.endpoint, {**arguments, argument: system_id.of(named)})
    about.machine = named
    return None


def find_machine(collection: str, identity: str) -> machine.Machine:
    """Look up the machine that a segment of a URI names.

    :param collection: path of the collection, such as ``/redfish/v1/Systems``
    :param identity: the segment after it
    :raises: `MachineNotFound` and other errors of `KubeVirtDriver.machine`
    """
    systems = application.current().systems
    if systems.only is not None and _is_only(collection, identity):
        identity = systems.only
    return systems.machine(identity)


def _is_only(collection: str, identity: str) -> bool:
    """Tell whether a segment names the VM of a service for a single one."""
    return application.current().systems.only is not None and (
        identity == system_id.ONLY
        or (collection, identity) == _MANAGER_ALIAS)


def _redirect(endpoint: str, arguments: dict[str, typing.Any]
              ) -> wrappers.Response:
    """Redirect to the same route with the system's Id.

    307, as sushy-emulator does: method and body are kept. Its own redirect
    fails for routes with several arguments and drops the query.
    """
    url = flask.url_for(endpoint, **arguments)
    query = flask.request.query_string.decode('latin-1')
    if query:
        url = f'{url}?{query}'
    return flask.redirect(url, code=307, Response=flask.Response)


def restore_encoded_slash(environ: types.WSGIEnvironment) -> None:
    """Accept ``namespace%2Fname`` as one segment of a path.

    WSGI decodes the path, which makes it two segments. It is replaced by
    ``namespace:name``, which the driver accepts as well.

    :param environ: its PATH_INFO is changed
    """
    raw = environ.get('REQUEST_URI') or environ.get('RAW_URI') or ''
    path = raw.partition('?')[0]
    marker = path.lower().find('%2f')
    if marker < 0:
        return
    for prefix in _PREFIXES:
        start = environ.get('SCRIPT_NAME', '') + prefix[:-1]
        segment, _slash, _rest = path[len(start):].partition('/')
        if path.startswith(start) and '%2f' in segment.lower():
            info = environ['PATH_INFO']
            head = prefix[:-1]
            if info.startswith(head):
                environ['PATH_INFO'] = head + info[len(head):].replace(
                    '/', ':', 1)
