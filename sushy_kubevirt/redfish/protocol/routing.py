# SPDX-License-Identifier: Apache-2.0
"""Declaration of routes by the modules of `resources`.

Each module has a tuple ``ROUTES`` made with `add` and `replace`, which
`routes` reads. If a rule begins with ``/redfish/v1/Systems/<identity>``,
``/redfish/v1/Managers/<identity>`` or ``/redfish/v1/Chassis/<identity>``, the
view is called with the machine instead of the identity (see `system_access`).

Optional: ``ROOT_LINKS``, a dict of ServiceRoot's property (``Links/Sessions``
for one below Links) to path; the link is shown in the feature sets that
include the path's route. ``REGISTRIES``, a tuple of `Registry`.
"""

from __future__ import annotations

import dataclasses
import functools
import re

from werkzeug import routing

#: Values of SUSHY_EMULATOR_FEATURE_SET, each including those before it.
FEATURE_SETS = ('minimum', 'vmedia', 'full')


@dataclasses.dataclass(frozen=True)
class Route:
    """A route.

    :param view: function that returns a response
    :param endpoint: Flask's endpoint; that of sushy-tools if its view is
        replaced
    :param rule: Flask's URL rule; None keeps that of sushy-tools
    :param methods: tuple of HTTP methods; None keeps those of sushy-tools
    :param feature: lowest feature set that includes it
    :param media: media type of its responses
    :param cached: whether responses to GET depend on nothing but the request,
        its account and the machine, see `response_cache`
    :param body: media type of the bodies of its requests; a view reads one
        that is not JSON itself
    :param websocket: whether it is for requests with ``Upgrade: websocket``,
        which match no other route
    """

    view: object
    endpoint: str
    rule: str | None = None
    methods: tuple | None = None
    feature: str = 'full'
    media: str = 'application/json'
    cached: bool = False
    body: str = 'application/json'
    websocket: bool = False


@dataclasses.dataclass(frozen=True)
class Registry:
    """A registry of this service, served by `resources.registries`.

    :param identity: Id of its MessageRegistryFile, including the version
    :param prefix: ``Registry`` of the MessageRegistryFile, by which clients
        find it
    :param name: Name
    :param document: function that returns the registry, a dict without
        ``@odata.id``, because it is a file and not a resource
    """

    identity: str
    prefix: str
    name: str
    document: object


def replace(endpoint, view, feature: str = 'full', cached: bool = False):
    """Replace the view of an endpoint of sushy-tools 2.2.0.

    :param endpoint: Flask's endpoint
    :param view: function that returns a response
    :param feature: lowest feature set that includes it
    :param cached: see `Route`
    :returns: `Route`
    """
    return Route(view, endpoint, feature=feature, cached=cached)


def add(rule, view, methods=('GET',), feature: str = 'full',
        media: str = 'application/json', cached: bool = False,
        body: str = 'application/json',
        websocket: bool = False):
    """Add a route that sushy-tools does not have.

    :param rule: Flask's URL rule
    :param view: function that returns a response
    :param methods: HTTP methods
    :param feature: lowest feature set that includes it
    :param media: media type of its responses
    :param cached: see `Route`
    :param body: see `Route`
    :param websocket: see `Route`
    :returns: `Route`
    """
    name = re.sub(r'\W+', '_', f'{rule} {methods[0]}').strip('_')
    return Route(view, 'kubevirt_' + ('websocket_' if websocket else '')
                 + name, rule, tuple(methods), feature, media, cached, body,
                 websocket)


class Rule(routing.Rule):
    """URL rule that makes the functions that build its URLs on first use.

    Werkzeug makes two for each rule, from syntax trees, which takes half a
    millisecond and some KiB. URLs are matched, and hardly ever built.
    """

    def _compile_builder(self, append_unknown: bool = True):
        return _build_unknown if append_unknown else _build


def _build(rule, /, **values):
    return routing.Rule._compile_builder(rule, False)(rule, **values)


def _build_unknown(rule, /, **values):
    return routing.Rule._compile_builder(rule, True)(rule, **values)


# Routes of an application

_MODULES = 'sushy_kubevirt.modules'
_FEATURES = 'sushy_kubevirt.features'
_SERVED = 'sushy_kubevirt.offered'
_CHILDREN = 'sushy_kubevirt.offered_below'


def register(app, modules, features) -> None:
    """Store which routes an application serves.

    :param app: Flask application
    :param modules: tuple of modules of `resources`
    :param features: dict of rule to the lowest feature set that includes it
    """
    app.extensions[_MODULES] = modules
    app.extensions[_FEATURES] = features


def modules(app):
    """Return a tuple of the modules of `resources` that are served."""
    return app.extensions[_MODULES]


def is_served(app, rule):
    """Check whether a rule is served in the application's feature set.

    Used before linking to a resource of another module.

    :param app: Flask application
    :param rule: URL rule; the names of its arguments do not matter
    :returns: bool
    """
    found = app.extensions.get(_SERVED)
    if found is None:
        found = {
            _without_arguments(
                each.rule): 0 for each in app.url_map.iter_rules()}
        found.update(
            (_without_arguments(each), FEATURE_SETS.index(feature))
            for each, feature in app.extensions[_FEATURES].items())
        app.extensions[_SERVED] = found
    level = found.get(_without_arguments(rule))
    return level is not None and level <= FEATURE_SETS.index(app.feature_set)


def served_children(app, rule, names):
    """Select the resources below a rule that are served.

    :param app: Flask application
    :param rule: URL rule of the parent
    :param names: tuple of last path segments
    :returns: tuple, the served ones of `names`
    """
    # Cached: called for every system that is read.
    known = app.extensions.setdefault(_CHILDREN, {})
    key = (rule, names, app.feature_set)
    if key not in known:
        known[key] = tuple(name for name in names
                           if is_served(app, f'{rule}/{name}'))
    return known[key]


@functools.cache
def _without_arguments(rule):
    return re.sub('<[^>]*>', '<>', rule)


def root_links(app):
    """Collect the links of the service root.

    :param app: Flask application
    :returns: dict of ServiceRoot's property to path
    """
    level = FEATURE_SETS.index(app.feature_set)
    features = app.extensions[_FEATURES]
    return {name: path for module in modules(app)
            for name, path in getattr(module, 'ROOT_LINKS', {}).items()
            if FEATURE_SETS.index(features[path]) <= level}
