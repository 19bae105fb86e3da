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

from collections import abc
import dataclasses
import functools
import re
import types
import typing

from werkzeug import routing

if typing.TYPE_CHECKING:
    import flask

    from sushy_kubevirt.redfish.protocol import application
    from sushy_kubevirt.redfish.protocol import responses

#: Values of SUSHY_EMULATOR_FEATURE_SET, each including those before it.
FEATURE_SETS = ('minimum', 'vmedia', 'full')

#: Function of the arguments of its URL rule.
View: typing.TypeAlias = 'abc.Callable[..., flask.Response]'


@dataclasses.dataclass(frozen=True)
class Route:
    """A route.

    :param endpoint: Flask's endpoint; that of sushy-tools if its view is
        replaced
    :param rule: Flask's URL rule; None keeps that of sushy-tools
    :param methods: HTTP methods; None keeps those of sushy-tools
    :param feature: lowest feature set that includes it
    :param media: media type of its responses
    :param cached: whether responses to GET depend on nothing but the request,
        its account and the machine, see `response_cache`
    :param body: media type of the bodies of its requests; a view reads one
        that is not JSON itself
    :param websocket: whether it is for requests with ``Upgrade: websocket``,
        which match no other route
    """

    view: View
    endpoint: str
    rule: str | None = None
    methods: tuple[str, ...] | None = None
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
    :param document: makes the registry, which has no ``@odata.id``, because it
        is a file and not a resource
    """

    identity: str
    prefix: str
    name: str
    document: abc.Callable[[], responses.Json]


def replace(endpoint: str, view: View, feature: str = 'full',
            cached: bool = False) -> Route:
    """Replace the view of an endpoint of sushy-tools 2.2.0.

    The parameters are those of `Route`.
    """
    return Route(view, endpoint, feature=feature, cached=cached)


def add(rule: str, view: View, methods: abc.Sequence[str] = ('GET',),
        feature: str = 'full', media: str = 'application/json',
        cached: bool = False, body: str = 'application/json',
        websocket: bool = False) -> Route:
    """Add a route that sushy-tools does not have.

    The parameters are those of `Route`.
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

    def _compile_builder(self, append_unknown: bool = True
                         ) -> abc.Callable[..., tuple[str, str]]:
        return _build_unknown if append_unknown else _build


def _build(rule: routing.Rule, /, **values: typing.Any) -> tuple[str, str]:
    return routing.Rule._compile_builder(rule, False)(rule, **values)


def _build_unknown(rule: routing.Rule, /, **values: typing.Any
                   ) -> tuple[str, str]:
    return routing.Rule._compile_builder(rule, True)(rule, **values)


# Routes of an application

_MODULES = 'sushy_kubevirt.modules'
_FEATURES = 'sushy_kubevirt.features'
_SERVED = 'sushy_kubevirt.offered'
_CHILDREN = 'sushy_kubevirt.offered_below'


def register(app: application.Application,
             modules: tuple[types.ModuleType, ...], features: dict[str, str]
             ) -> None:
    """Store which routes an application serves.

    :param modules: modules of `resources`
    :param features: rule to the lowest feature set that includes it
    """
    app.extensions[_MODULES] = modules
    app.extensions[_FEATURES] = features


def modules(app: application.Application) -> tuple[types.ModuleType, ...]:
    """Return the modules of `resources` that are served."""
    served: tuple[types.ModuleType, ...] = app.extensions[_MODULES]
    return served


def is_served(app: application.Application, rule: str) -> bool:
    """Check whether a rule is served in the application's feature set.

    Used before linking to a resource of another module.

    :param rule: URL rule; the names of its arguments do not matter
    """
    levels: dict[str, int] | None = app.extensions.get(_SERVED)
    if levels is None:
        levels = {_without_arguments(upstream.rule): 0
                  for upstream in app.url_map.iter_rules()}
        levels.update(
            (_without_arguments(own), FEATURE_SETS.index(feature))
            for own, feature in app.extensions[_FEATURES].items())
        app.extensions[_SERVED] = levels
    level = levels.get(_without_arguments(rule))
    return level is not None and level <= FEATURE_SETS.index(app.feature_set)


def served_children(app: application.Application, rule: str,
                    names: tuple[str, ...]) -> tuple[str, ...]:
    """Select the resources below a rule that are served.

    :param rule: URL rule of the parent
    :param names: last path segments
    :returns: the served ones of `names`
    """
    # Cached: called for every system that is read.
    known: dict[tuple[str, tuple[str, ...], str], tuple[str, ...]] = (
        app.extensions.setdefault(_CHILDREN, {}))
    key = (rule, names, app.feature_set)
    if key not in known:
        known[key] = tuple(name for name in names
                           if is_served(app, f'{rule}/{name}'))
    return known[key]


@functools.cache
def _without_arguments(rule: str) -> str:
    return re.sub('<[^>]*>', '<>', rule)


def root_links(app: application.Application) -> dict[str, str]:
    """Collect the links of the service root.

    :returns: ServiceRoot's property to path
    """
    level = FEATURE_SETS.index(app.feature_set)
    features = app.extensions[_FEATURES]
    return {name: path for module in modules(app)
            for name, path in getattr(module, 'ROOT_LINKS', {}).items()
            if FEATURE_SETS.index(features[path]) <= level}
