# SPDX-License-Identifier: Apache-2.0
"""The application and the request, with the types that Flask does not know.

sushy-emulator's application has members of its own, and `emulator.plugin` adds
others.
"""

from __future__ import annotations

from collections import abc
import typing

import flask

if typing.TYPE_CHECKING:
    from werkzeug import local

    from sushy_kubevirt.machine import cluster
    from sushy_kubevirt.machine import machine
    from sushy_kubevirt.redfish.services import service_context
    from sushy_kubevirt.redfish.services import settings

    # Members of the protocol have the names of the modules.
    Cluster: typing.TypeAlias = cluster.Cluster
    Machine: typing.TypeAlias = machine.Machine
    Settings: typing.TypeAlias = settings.Settings


class Driver(typing.Protocol):
    """Of `emulator.system_driver.KubeVirtDriver`, which documents it."""

    settings: Settings
    cluster: Cluster

    @property
    def only(self) -> str | None:
        ...

    @property
    def uuid_of_service(self) -> str:
        ...

    def machines(self) -> abc.Sequence[Machine]:
        ...

    def machine(self, identity: str) -> Machine:
        ...


class State(typing.Protocol):
    """What `emulator.plugin` adds to an application."""

    services: service_context.Services


class Application(flask.Flask):
    """sushy-emulator's application (``main.Application``); a type only."""

    feature_set: str
    systems: Driver
    sushy_kubevirt: State


def current() -> Application:
    """Return the application of the request, not a proxy of it."""
    return typing.cast('local.LocalProxy[Application]',
                       flask.current_app)._get_current_object()


def request() -> flask.Request:
    """Return the request, not a proxy of it."""
    return typing.cast('local.LocalProxy[flask.Request]',
                       flask.request)._get_current_object()
