# SPDX-License-Identifier: Apache-2.0
"""BMC drivers: what an entry's BMC controls.

A driver is a class in stevedore's namespace `NAMESPACE`, registered in the
entry points of its package; the name there is what ``vbmc add --driver``
accepts.
"""

from __future__ import annotations

import argparse
from importlib import metadata
import logging
import typing

import stevedore

if typing.TYPE_CHECKING:
    from vbmc_kubevirt import entries

LOG = logging.getLogger(__name__)

NAMESPACE = 'virtualbmc.drivers'


class Driver(typing.Protocol):
    """What a driver has.

    It is created in the daemon when an entry first needs it. ``vbmc`` loads
    the class too, so its `__init__` imports the modules that only the daemon
    needs. Methods report errors by raising
    ``virtualbmc.exception.VirtualBMCError``.

    :cvar options: those stored in an entry's config file, in addition to those
        of all entries (user name, password, address, port)
    :cvar chosen: subset of ``options`` that are None unless the user gave
        them. Giving one of them with another driver is an error.
    """

    options: tuple[str, ...]
    chosen: tuple[str, ...]

    def __init__(self) -> None:
        ...

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the options to ``vbmc add``.

        Runs in the client: make paths absolute here, as the daemon has another
        working directory.
        """

    def check(self, entry: entries.Entry) -> entries.Entry:
        """Check a new entry and return what to store.

        ``vbmc`` waits for at most ``server_response_timeout``.
        """
        ...

    def start(self, entry: entries.Entry) -> bool:
        """Serve an entry; do nothing if it is served already.

        Called periodically for every active entry.

        :returns: whether it was started now
        """
        ...

    def stop(self, name: str) -> bool:
        """Stop serving an entry. Return whether it was served."""
        ...

    def state(self, name: str) -> tuple[str, str]:
        """Return status and problem of a started entry.

        The status is virtualbmc's ``running``, ``error`` or ``down``; the
        problem is '' for none.
        """
        ...

    def close(self) -> None:
        """Stop all entries: the daemon ends."""


def load() -> dict[str, type[Driver]]:
    """Load the installed drivers; skip those that fail to import."""
    manager: stevedore.ExtensionManager[Driver] = stevedore.ExtensionManager(
        NAMESPACE, on_load_failure_callback=_log_failure)
    return {extension.name: extension.plugin for extension in manager}


def _log_failure(manager: stevedore.ExtensionManager[Driver],
                 entry_point: metadata.EntryPoint,
                 error: BaseException) -> None:
    LOG.warning(
        'Driver %s is not available, import failed: %s',
        entry_point.name,
        error)
