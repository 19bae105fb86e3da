# SPDX-License-Identifier: Apache-2.0
"""How a module of `resources` says which routes it answers.

Each has a tuple ``ROUTES`` of what is made here; `views` reads them. A rule
below ``/redfish/v1/Systems/<identity>`` or ``/redfish/v1/Managers/<identity>``
makes the view be called with the machine instead of an identity (see
`access`).

A module whose resource hangs on the service root has a dict ``ROOT_LINKS`` of
ServiceRoot's property to path, ``Links/Sessions`` for one below another. The
link is there for the feature sets that the path's route is part of.
"""

import dataclasses
import re

#: SUSHY_EMULATOR_FEATURE_SET, from the least.
FEATURES = ('minimum', 'vmedia', 'full')


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


def replace(endpoint, view, feature='full'):
    """Answer in the place of upstream (endpoints of sushy-tools 2.2.0)."""
    return Route(view, endpoint, feature=feature)


def add(rule, view, methods=('GET',), feature='full',
        media='application/json'):
    """Answer at a rule that upstream does not have."""
    name = re.sub(r'\W+', '_', '%s %s' % (rule, methods[0])).strip('_')
    return Route(view, 'kubevirt_' + name, rule, tuple(methods), feature,
                 media)
