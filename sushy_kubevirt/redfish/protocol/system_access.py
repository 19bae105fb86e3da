# SPDX-License-Identifier: Apache-2.0
"""Resolve the system that a request is about, and check access to it.

`resolve_system` runs before every view, including sushy-emulator's, and looks
at the matched URL rule: everything below ``/redfish/v1/Systems/<...>``,
``/redfish/v1/Managers/<...>`` or ``/redfish/v1/Chassis/<...>`` belongs to the
system named there (manager and chassis have the system's UUID). New routes are
therefore covered without a change. `KubeVirtDriver.machine` decides which VMs
may be reached.

If a single VM is served, as in the pod of a BMC, the names that KubeVirtBMC
uses (`ALIASES`) work as well, for its clients. They are not redirects, because
many clients do not follow a redirect of a POST.
"""

import functools

import flask

_PREFIXES = ('/redfish/v1/Systems/<', '/redfish/v1/Managers/<',
             '/redfish/v1/Chassis/<')

#: KubeVirtBMC's names for the only VM's system and manager, by URL prefix.
ALIASES = {'/redfish/v1/Systems/<': '1', '/redfish/v1/Managers/<': 'BMC'}

#: KubeVirtBMC's name for the CD-ROM: view argument, alias, our name.
_DEVICE = ('device', 'CD1', 'Cd')


@functools.cache
def system_argument(rule):
    """Find the view argument that names the system.

    :param rule: URL rule, str
    :returns: name of the argument, or None
    """
    for prefix in _PREFIXES:
        if rule.startswith(prefix):
            argument = rule[len(prefix):].partition('>')[0]
            return argument.rpartition(':')[2]
    return None


def resolve_system():
    """Store the machine in ``flask.g.machine``, None for other resources.

    For Flask's before_request.

    :returns: None, or a redirect from a name to the UUID
    :raises: `MachineNotFound` and other errors of `KubeVirtDriver.machine`
    """
    request = flask.request._get_current_object()
    about = flask.g._get_current_object()
    about.machine = None
    rule = request.url_rule
    argument = None if rule is None else system_argument(rule.rule)
    if argument is None:
        return None
    arguments = request.view_args
    identity = arguments[argument]
    systems = flask.current_app.systems
    only = systems.only
    if only is not None:
        name, alias, device = _DEVICE
        if arguments.get(name) == alias:
            arguments[name] = device
    if only is not None and identity == _alias(request.url_rule.rule):
        machine = systems.machine(only)
        # For sushy-emulator's own views, which look up the identity.
        arguments[argument] = machine.uuid
    else:
        machine = systems.machine(identity)
        if identity.lower() != machine.uuid:
            return _redirect(argument, machine.uuid)
    about.machine = machine
    return None


@functools.cache
def _alias(rule):
    """Return KubeVirtBMC's name for the only system in a rule, or None."""
    for prefix, alias in ALIASES.items():
        if rule.startswith(prefix):
            return alias
    return None


def _redirect(argument, uuid):
    """Redirect to the same route with the system's UUID.

    307, as sushy-emulator does: method and body are kept. Its own redirect
    fails for routes with several arguments and drops the query.
    """
    request = flask.request
    url = flask.url_for(request.endpoint,
                        **{**request.view_args, argument: uuid})
    query = request.query_string.decode('latin-1')
    if query:
        url = f'{url}?{query}'
    return flask.redirect(url, code=307, Response=flask.Response)


def restore_encoded_slash(environ):
    """Accept ``namespace%2Fname`` as one segment of a path.

    WSGI decodes the path, which makes it two segments. It is replaced by
    ``namespace:name``, which the driver accepts as well.

    :param environ: WSGI environ; its PATH_INFO is changed
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
