# SPDX-License-Identifier: Apache-2.0
"""What the resources of one system have in common.

Where they are, that each VM has a chassis and a manager of its own under the
UUID of its system, and how a machine's refusal of a value is answered.
"""

import contextlib

import flask

from sushy_kubevirt.kube import errors as machine_errors
from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing

SYSTEMS = '/redfish/v1/Systems'
MANAGERS = '/redfish/v1/Managers'
CHASSIS = '/redfish/v1/Chassis'

#: Status of a part that a VM has: KubeVirt knows of no others.
STATUS_OK = {'State': 'Enabled', 'Health': 'OK'}


def system(machine, *names):
    """Path of a system, or of something below."""
    return '/'.join((SYSTEMS, machine.uuid, *names))


def manager(machine, *names):
    """Path of a system's manager, or of something below."""
    return '/'.join((MANAGERS, machine.uuid, *names))


def chassis(machine, *names):
    """Path of a system's chassis, or of something below."""
    return '/'.join((CHASSIS, machine.uuid, *names))


def collection(kind, name, here, ids):
    """200 with a collection.

    :param kind: what its members are, such as ``Processor``
    :param here: its own path
    :param ids: of its members
    """
    return responses.collection(kind + 'Collection', name, here, [
        f'{here}/{one}' for one in ids])


def links(here, rule, names):
    """Links to those resources below a path that there are.

    :param here: the path
    :param rule: the rule of its route
    :param names: of properties, which are the last segments too
    :returns: dict of property to link
    """
    app = flask.current_app._get_current_object()
    return {name: responses.link(f'{here}/{name}')
            for name in routing.served_children(app, rule, tuple(names))}


@contextlib.contextmanager
def property_errors(machine, name, value):
    """Name the property and value when the machine refuses a change.

    :param name: JSON pointer of the property, without the slash before
    """
    try:
        yield
    except machine_errors.InvalidValue as exc:
        refused = getattr(exc.value, 'value', exc.value)
        above = name.rpartition('/')[0]
        if above:
            # Of several that were set together, the one that is refused.
            name = f'{above}/{exc.property}'
        raise errors.RedfishError(400, messages.message(
            'PropertyValueIncorrect', exc.property, refused, detail=str(exc),
            related=['#/' + name])) from exc
    except (machine_errors.WrongState, machine_errors.Rejected) as exc:
        raise errors.RedfishError(409, messages.message(
            'PropertyValueResourceConflict', name.rpartition('/')[2], value,
            system(machine), detail=str(exc), related=['#/' + name])) from exc
