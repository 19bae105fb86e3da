# SPDX-License-Identifier: Apache-2.0
"""Paths, links and errors shared by the resources of one system.

Each VM has a system, a manager and a chassis with the same Id, see
`services.system_id`.
"""

from __future__ import annotations

import contextlib
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import etags
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.services import system_id

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine import machine

SYSTEMS = system_id.SYSTEMS
MANAGERS = '/redfish/v1/Managers'
CHASSIS = '/redfish/v1/Chassis'

# Prefix of keys in app.extensions, of a `_Collection`.
_COLLECTION = 'sushy_kubevirt.collection:'

_Member = typing.TypeVar('_Member')

#: Status of every device: KubeVirt reports no faults of virtual devices.
STATUS_OK = {'State': 'Enabled', 'Health': 'OK'}


class _Collection(typing.NamedTuple):
    """A collection of all machines, with its JSON text and ETag."""

    machines: abc.Sequence[machine.Machine]
    body: responses.Json
    rendered: tuple[str, str]


def system(machine: machine.Machine, *names: str) -> str:
    """Return the path of a system or of a resource below it.

    :param names: path segments below the system
    """
    return '/'.join((SYSTEMS, system_id.of(machine), *names))


def manager(machine: machine.Machine, *names: str) -> str:
    """Return the path of a system's manager or a resource below it."""
    return '/'.join((MANAGERS, system_id.of(machine), *names))


def chassis(machine: machine.Machine, *names: str) -> str:
    """Return the path of a system's chassis or a resource below it."""
    return '/'.join((CHASSIS, system_id.of(machine), *names))


def place(start: str) -> abc.Callable[..., str]:
    """Return `system` or `manager`, for resources that both have.

    :param start: path of the request, or its start
    """
    return manager if start.startswith(MANAGERS) else system


def machine_collection(kind: str, name: str, here: str) -> responses.Document:
    """Create the response 200 with a collection of one member per machine.

    It is made once for the machines that the driver returns, as ten thousand
    members take a tenth of a second.

    :param kind: schema of its members, such as ``Chassis``
    :param name: value of Name
    :param here: its path
    """
    app = application.current()
    machines = app.systems.machines()
    known: _Collection | None = app.extensions.get(_COLLECTION + here)
    if known is None or known.machines is not machines:
        body = responses.collection(kind, name, here,
                                    map(system_id.of, machines))
        known = _Collection(machines, body, etags.render(body))
        app.extensions[_COLLECTION + here] = known
    return responses.Document(known.body, rendered=known.rendered)


def member(kind: str, id_: str, members: abc.Mapping[str, _Member]) -> _Member:
    """Return a member of a collection.

    :param kind: its schema, such as ``Processor``
    :param members: by their ids
    :raises: `error_responses.RedfishError`, 404
    """
    if id_ not in members:
        raise error_responses.resource_not_found(kind, id_)
    return members[id_]


def links(here: str, rule: str, names: abc.Iterable[str]
          ) -> dict[str, dict[str, str]]:
    """Build links to the resources below a path that are served.

    :param here: the path
    :param rule: URL rule of the path
    :param names: properties, which are also the last path segments
    :returns: property to link
    """
    routes = routing.current()
    return {name: responses.link(f'{here}/{name}') for name in names
            if routes.serves(f'{rule}/{name}')}


@contextlib.contextmanager
def property_errors(machine: machine.Machine, name: str, value: typing.Any
                    ) -> abc.Iterator[None]:
    """Convert errors of a change to errors that name the property and value.

    :param name: JSON pointer of the property, without the leading slash
    :param value: requested value
    :raises: `error_responses.RedfishError`: 400 invalid value, 409 wrong state
    """
    try:
        yield
    except errors.InvalidValue as exc:
        refused = getattr(exc.value, 'value', exc.value)
        above = name.rpartition('/')[0]
        if above:
            # Several properties were set together: name the refused one.
            name = f'{above}/{exc.property}'
        raise error_responses.base_error(
            400, 'PropertyValueIncorrect', exc.property, refused,
            detail=str(exc), related=['#/' + name]) from exc
    except (errors.WrongState, errors.Rejected) as exc:
        raise error_responses.base_error(
            409, 'PropertyValueResourceConflict', name.rpartition('/')[2],
            value, system(machine), detail=str(exc),
            related=['#/' + name]) from exc
