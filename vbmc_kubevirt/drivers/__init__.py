# SPDX-License-Identifier: Apache-2.0
"""Drivers: what an entry's BMC is a BMC of.

A driver is a class under stevedore's namespace `NAMESPACE`; its name there is
what ``vbmc add --driver`` takes. A new one is a new module and a line in its
package's entry points. It has, and needs no more than:

``options``
    tuple of the options it keeps in an entry's config file, beside those
    that all entries have (user, password, address, port).
``chosen``
    those of ``options`` that are None unless somebody gave them, so that
    giving them to an entry of another driver can be refused.
``add_arguments(parser)``
    static; adds the options to ``vbmc add``, as its client parses them. Paths
    become absolute here: the daemon works in another folder.
``Driver()``
    in the daemon, when an entry first needs it. Import here, not at the top
    of the module, what only the daemon needs: ``vbmc`` loads the class too.
``check(entry)``
    before an entry is added: returns it as it is to be stored, or refuses.
    ``vbmc`` waits for the answer for no longer than
    ``server_response_timeout``.
``start(entry)``
    serve it. Called again and again for every entry that should run, so it
    has nothing to do for one that does. Returns True if it was started now.
``stop(name)``
    do not. Returns True if it did until now.
``state(name)``
    (status, problem) of an entry that was started: status is one of
    virtualbmc's ``running``, ``error``, ``down``, problem is for people, ''
    if there is none.
``close()``
    serve nothing any more: the daemon ends.

All refuse by raising ``virtualbmc.exception.VirtualBMCError``.
"""

import logging

import stevedore

LOG = logging.getLogger(__name__)

NAMESPACE = 'virtualbmc.drivers'


def load():
    """Find the drivers that are installed and can be imported.

    :returns: dict of name to class
    """
    found = stevedore.ExtensionManager(
        NAMESPACE, on_load_failure_callback=_complain)
    return {extension.name: extension.plugin for extension in found}


def _complain(manager, entry_point, error):
    LOG.warning('Driver %s cannot be used: %s', entry_point.name, error)
