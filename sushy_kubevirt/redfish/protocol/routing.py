# SPDX-License-Identifier: Apache-2.0
"""How a module of `resources` says which routes it answers.

Each has a tuple ``ROUTES`` of what is made here; `views` reads them. A rule
below ``/redfish/v1/Systems/<identity>`` or ``/redfish/v1/Managers/<identity>``
makes the view be called with the machine instead of an identity (see
`access`).

A module whose resource hangs on the service root has a dict ``ROOT_LINKS`` of
ServiceRoot's property to path, ``Links/Sessions`` for one below another. The
link is there for the feature sets that the path's route is part of. One that
has a registry of its own has ``REGISTRIES``, a tuple of `Registry`.
"""

import dataclasses
import functools
import re

#: SUSHY_EMULATOR_FEATURE_SET, from the least.
FEATURE_SETS = ('minimum', 'vmedia', 'full')


@dataclasses.dataclass(frozen=True)
class Route:
    """One route.

    :param view: what answers
    :param endpoint: Flask's name for it; upstream's, if it takes the place
        of a view of sushy-tools
    :param rule: Flask's URL rule; None if upstream's is kept
    :param methods: tuple of HTTP methods; None if upstream's are kept
    :param feature: the least feature set it is part of
    :param media: media type of what it answers with
    """

    view: object
    endpoint: str
    rule: str | None = None
    methods: tuple | None = None
    feature: str = 'full'
    media: str = 'application/json'


@dataclasses.dataclass(frozen=True)
class Registry:
    """A registry that a module has and `resources.registries` serves.

    :param identity: Id of its file, with the version
    :param prefix: what clients look it up by: the ``Registry`` of a
        MessageRegistryFile
    :param name: for people
    :param document: function that returns the registry, a dict; without
        ``@odata.id``, as it is a file and no resource
    """

    identity: str
    prefix: str
    name: str
    document: object


def replace(endpoint, view, feature='full'):
    """Answer in the place of upstream (endpoints of sushy-tools 2.2.0)."""
    return Route(view, endpoint, feature=feature)


def add(rule, view, methods=('GET',), feature='full',
        media='application/json'):
    """Answer at a rule that upstream does not have."""
    name = re.sub(r'\W+', '_', f'{rule} {methods[0]}').strip('_')
    return Route(view, 'kubevirt_' + name, rule, tuple(methods), feature,
                 media)


# What is known of an application's routes

_MODULES = 'sushy_kubevirt.modules'
_FEATURES = 'sushy_kubevirt.features'
_SERVED = 'sushy_kubevirt.offered'
_CHILDREN = 'sushy_kubevirt.offered_below'


def register(app, modules, features):
    """Note what an application serves: for `views`.

    :param modules: tuple of modules
    :param features: dict of rule to the least feature set
    """
    app.extensions[_MODULES] = modules
    app.extensions[_FEATURES] = features


def modules(app):
    """The modules that answer, a tuple."""
    return app.extensions[_MODULES]


def is_served(app, rule):
    """Whether there is something at a rule, ours or upstream's.

    For links to what another module may answer.

    :param rule: with any names in place of the arguments
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
    """Which there are of some resources below a rule.

    :param names: tuple of last segments
    :returns: tuple
    """
    # Asked for each system that is read, and always the same.
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
    """What hangs on the service root.

    :returns: dict of property to path
    """
    level = FEATURE_SETS.index(app.feature_set)
    features = app.extensions[_FEATURES]
    return {name: path for module in modules(app)
            for name, path in getattr(module, 'ROOT_LINKS', {}).items()
            if FEATURE_SETS.index(features[path]) <= level}
