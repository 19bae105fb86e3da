# SPDX-License-Identifier: Apache-2.0
"""BMC drivers: what an entry's BMC controls.

A driver is a class in stevedore's namespace `NAMESPACE`, registered in the
entry points of its package; the name there is what ``vbmc add --driver``
accepts. Its attributes and methods:

``options``
    tuple of the options stored in an entry's config file, in addition to
    those of all entries (user name, password, address, port).
``chosen``
    subset of ``options`` that are None unless the user gave them. Giving one
    of them with another driver is an error.
``add_arguments(parser)``
    static; adds the options to ``vbmc add``. Runs in the client: make paths
    absolute here, as the daemon has another working directory.
``Driver()``
    created in the daemon when an entry first needs it. ``vbmc`` loads the
    class too, so import modules here that only the daemon needs.
``check(entry)``
    called before an entry is added; returns the dict to store. ``vbmc``
    waits for at most ``server_response_timeout``.
``start(entry)``
    serve the entry. Called periodically for every active entry, and must do
    nothing if it is served already. Returns True if it was started now.
``stop(name)``
    stop serving the entry. Returns True if it was served.
``state(name)``
    returns (status, problem) of a started entry: status is virtualbmc's
    ``running``, ``error`` or ``down``; problem is a text, '' for none.
``close()``
    stop all entries: the daemon ends.

Methods report errors by raising ``virtualbmc.exception.VirtualBMCError``.
"""

from __future__ import annotations

import logging

import stevedore

LOG = logging.getLogger(__name__)

NAMESPACE = 'virtualbmc.drivers'


def load():
    """Load the installed drivers; skip those that fail to import.

    :returns: dict of name to class
    """
    found = stevedore.ExtensionManager(
        NAMESPACE, on_load_failure_callback=_log_failure)
    return {extension.name: extension.plugin for extension in found}


def _log_failure(manager, entry_point, error) -> None:
    LOG.warning(
        'Driver %s is not available, import failed: %s',
        entry_point.name,
        error)
