# SPDX-License-Identifier: Apache-2.0
"""Which system a request is about, and whether it may be.

Runs before every view, upstream's included, and looks at the rule that was
matched: whatever lies below ``/redfish/v1/Systems/<…>``,
``/redfish/v1/Managers/<…>`` or ``/redfish/v1/Chassis/<…>`` belongs to the
system named there (its manager and its chassis have its UUID). So a route
that is added later is guarded without being told. `KubeVirtDriver.machine` is
the one place that decides; views get a machine from here and never look one
up.

Where a single VM is served and there can be no other, as in the pod of a BMC,
it also goes by the names that KubeVirtBMC has for its only one, so that what
was written for that works here: `ALIASES`. They are no redirects, which many
a client does not follow with a POST.
"""

import functools

import flask

_PREFIXES = ('/redfish/v1/Systems/<', '/redfish/v1/Managers/<',
             '/redfish/v1/Chassis/<')

#: Of the only VM there is: its system, its manager.
ALIASES = {'/redfish/v1/Systems/<': '1', '/redfish/v1/Managers/<': 'BMC'}

#: Of its device for CDs: as a view's argument, the alias, what it is for.
_DEVICE = ('device', 'CD1', 'Cd')


@functools.cache
def system_argument(rule):
    """The view argument that names the system a route belongs to.

    :param rule: text of a URL rule
    :returns: the argument's name, or None
    """
    for prefix in _PREFIXES:
        if rule.startswith(prefix):
            argument = rule[len(prefix):].partition('>')[0]
            return argument.rpartition(':')[2]
    return None


def resolve_system():
    """Put the machine into ``flask.g``, or answer in the view's place.

    For Flask's before_request.

    :returns: None, or the redirect from a name to its UUID
    :raises: `errors.MachineNotFound` and what else `KubeVirtDriver.machine`
        raises
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
        # For upstream's views, which look it up.
        arguments[argument] = machine.uuid
    else:
        machine = systems.machine(identity)
        if identity.lower() != machine.uuid:
            return _redirect(argument, machine.uuid)
    about.machine = machine
    return None


@functools.cache
def _alias(rule):
    """What the only system is called in a route, or None."""
    for prefix, alias in ALIASES.items():
        if rule.startswith(prefix):
            return alias
    return None


def _redirect(argument, uuid):
    """To the same route of the same system, by its UUID.

    307 as upstream: method and body stay. Upstream's own redirect fails
    where a route has more arguments than one, and drops the query.
    """
    request = flask.request
    url = flask.url_for(request.endpoint,
                        **{**request.view_args, argument: uuid})
    query = request.query_string.decode('latin-1')
    if query:
        url = f'{url}?{query}'
    return flask.redirect(url, code=307, Response=flask.Response)


def restore_encoded_slash(environ):
    """Let 'namespace%2Fname' be one segment of a path.

    WSGI hands the path on decoded, where the two are segments of their own.
    'namespace:name', which the driver takes as well, is put in its place.

    :param environ: of WSGI; its PATH_INFO is changed
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
