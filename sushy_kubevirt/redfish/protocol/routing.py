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
import functools
import re
import types
import typing

from werkzeug import routing

from sushy_kubevirt.redfish.protocol import application

if typing.TYPE_CHECKING:
    import flask

    from sushy_kubevirt.redfish.protocol import responses

#: Values of SUSHY_EMULATOR_FEATURE_SET, each including those before it.
FEATURE_SETS = ('minimum', 'vmedia', 'full')

#: Environ key of the URL rule of the request's route, for the server's
#: metrics.
RULE = 'sushy_kubevirt.rule'

_KEY = 'sushy_kubevirt.routes'

#: Function of the arguments of its URL rule. It returns a resource, None for
#: 204, or another response.
View: typing.TypeAlias = (
    'abc.Callable[..., flask.Response | responses.Json | None]')


class Route(typing.NamedTuple):
    """A route.

    :param endpoint: Flask's endpoint; that of sushy-tools if its view is
        replaced
    :param views: HTTP method to view; that of GET also serves HEAD
    :param rule: Flask's URL rule; None keeps that of sushy-tools
    :param feature: lowest feature set that includes it
    :param media: media type of its responses
    :param cached: whether responses to GET depend on nothing but the request,
        its account and the machine, see `response_cache`
    :param body: media type of the bodies of its requests; a view reads one
        that is not JSON itself
    :param websocket: whether it is for requests with ``Upgrade: websocket``,
        which match no other route
    :param owner: returns the name of the account that owns the resource, for
        resources that ConfigureSelf gives access to; receives the arguments
        of the URL rule
    """

    endpoint: str
    views: abc.Mapping[str, View]
    rule: str | None = None
    feature: str = 'full'
    media: str = 'application/json'
    cached: bool = False
    body: str = 'application/json'
    websocket: bool = False
    owner: abc.Callable[..., str | None] = lambda **_arguments: None


class Registry(typing.NamedTuple):
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


def _by_method(**views: View | None) -> dict[str, View]:
    return {method.upper(): view for method, view in views.items() if view}


def replace(endpoint: str, get: View | None = None, feature: str = 'full', *,
            post: View | None = None, patch: View | None = None,
            delete: View | None = None, cached: bool = False) -> Route:
    """Replace the views of an endpoint of sushy-tools 2.2.0.

    :param get: view of GET; the others are those of their methods
    """
    return Route(
        endpoint, _by_method(get=get, post=post, patch=patch, delete=delete),
        feature=feature, cached=cached)


def add(rule: str, get: View | None = None, feature: str = 'full', *,
        post: View | None = None, patch: View | None = None,
        delete: View | None = None, **options: typing.Any) -> Route:
    """Add a route that sushy-tools does not have.

    :param get: view of GET; the others are those of their methods
    :param options: other fields of `Route`
    """
    views = _by_method(get=get, post=post, patch=patch, delete=delete)
    name = re.sub(r'\W+', '_', ' '.join(('kubevirt', rule, *views)))
    return Route(name + '_websocket' * bool(options.get('websocket')), views,
                 rule, feature, **options)


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


class Routes:
    """The routes that an application serves.

    :param app: with all its routes
    :param modules: modules of `resources`
    :ivar allow: URL rule to value of the header Allow
    """

    def __init__(self, app: application.Application,
                 modules: tuple[types.ModuleType, ...]) -> None:
        self.modules = modules
        self._routes = {route.endpoint: route for module in modules
                        for route in module.ROUTES}
        self._levels: dict[str, int] = {}
        methods: dict[str, set[str]] = {}
        for rule in app.url_map.iter_rules():
            route = self._routes.get(rule.endpoint)
            # Upstream's rule of UpdateService ends with a slash.
            self._levels[_without_arguments(rule.rule.rstrip('/'))] = (
                FEATURE_SETS.index(route.feature) if route else 0)
            methods.setdefault(rule.rule, set()).update(rule.methods or ())
        self.allow = {
            rule: ', '.join(sorted(names)) for rule, names in methods.items()}
        app.extensions[_KEY] = self

    def of(self, endpoint: str | None) -> Route:
        """Return the route of an endpoint; also of others and of none."""
        return self._routes.get(endpoint or '', _OTHER)

    def serves(self, rule: str) -> bool:
        """Check whether a rule is served in the application's feature set.

        Used before linking to a resource of another module.

        :param rule: URL rule; the names of its arguments do not matter
        """
        level = self._levels.get(_without_arguments(rule))
        return level is not None and level <= feature_level()

    def root_links(self) -> dict[str, str]:
        """Collect the links of the service root.

        :returns: ServiceRoot's property to path
        """
        return {name: path for module in self.modules
                for name, path in getattr(module, 'ROOT_LINKS', {}).items()
                if self.serves(path)}


_OTHER = Route('', {})


def current() -> Routes:
    """Return the routes of the application of the request."""
    routes: Routes = application.current().extensions[_KEY]
    return routes


def feature_level() -> int:
    """Return the index of the application's feature set."""
    return FEATURE_SETS.index(application.current().feature_set)


@functools.cache
def _without_arguments(rule: str) -> str:
    return re.sub('<[^>]*>', '<>', rule)
