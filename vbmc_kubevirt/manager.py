# SPDX-License-Identifier: Apache-2.0
"""Manager of BMC entries: forwards ``vbmc`` commands to the drivers.

Replaces virtualbmc's ``VirtualBMCManager`` and has the same methods. As
upstream does, it stores in each config file whether the entry is active, and
starts active entries periodically.
"""

from __future__ import annotations

import logging
import typing

from vbmc_kubevirt import drivers
from vbmc_kubevirt import entries
from vbmc_kubevirt import upstream

LOG = logging.getLogger(__name__)

#: Options of every entry; each driver adds its own.
COMMON = ('domain_name', 'username', 'password', 'address', 'port')

#: Driver of entries that name none: ``vbmcd`` without drivers made them.
UNNAMED_DRIVER = 'libvirt'

#: Columns of ``vbmc list``: (title, key).
COLUMNS = (('Domain name', 'domain_name'), ('Status', 'status'),
           ('Address', 'address'), ('Port', 'port'), ('Driver', 'driver'))


#: Exit code and message of a command.
Result: typing.TypeAlias = tuple[int, str]

# Not written where they are used: there, `list` is a method.
Entries: typing.TypeAlias = list[entries.Entry]
Pairs: typing.TypeAlias = list[tuple[str, typing.Any]]


class Manager:
    """All entries of a daemon."""

    def __init__(self) -> None:
        self._entries = entries.Entries(
            upstream.CONF['default']['config_dir'])
        self._classes = drivers.load()
        self._drivers: dict[str, drivers.Driver] = {}
        self._failures: dict[str, str] = {}
        self._default = upstream.section('drivers').get(
            'default', UNNAMED_DRIVER)
        self._class(self._default)
        # Fail at start if the default driver's configuration is invalid.
        self._driver(self._default)

    def _class(self, name: str) -> type[drivers.Driver]:
        try:
            return self._classes[name]
        except KeyError:
            raise upstream.VirtualBMCError(
                f'Unknown driver {name}; installed: '
                + ', '.join(sorted(self._classes)))

    def _driver(self, name: str) -> drivers.Driver:
        """Return the driver of a name; create it on first use."""
        if name not in self._drivers:
            self._drivers[name] = self._class(name)()
        return self._drivers[name]

    def _driver_of(self, entry: entries.Entry) -> drivers.Driver:
        return self._driver(entry.get('driver', UNNAMED_DRIVER))

    # Methods called by virtualbmc's control module

    def add(self, domain_name: str, port: str | int,
            driver: str | None = None, **options: typing.Any) -> Result:
        """Add an entry; it is not started.

        :param domain_name: name of the entry
        :param port: UDP port
        :param driver: name; None for the default driver
        :param options: all options of ``vbmc add``, including other drivers'
        """
        driver = driver or self._default
        try:
            own = self._class(driver).options
            for other, kind in self._classes.items():
                for option in kind.chosen:
                    if options.get(option) is not None and option not in own:
                        raise upstream.VirtualBMCError(
                            f'--{option} is an option of driver {other}; '
                            f'this BMC uses driver {driver}')
            given: entries.Entry = options | {
                'domain_name': domain_name,
                'port': entries.port_number(port)}
            entry = {option: given.get(option) for option in COMMON + own}
            # Validate the name before the driver contacts the cluster.
            self._entries.path(domain_name)
            entry = self._driver(driver).check(entry)
            self._entries.create(entry | {'driver': driver, 'active': False})
        except (upstream.VirtualBMCError, ValueError) as exc:
            LOG.error('%s: not added: %s', domain_name, exc)
            return 1, str(exc)
        return 0, ''

    def delete(self, domain_name: str) -> Result:
        """Stop and remove an entry."""
        rc, message = self.stop(domain_name)
        if rc:
            return rc, message
        self._entries.remove(domain_name)
        return 0, ''

    def start(self, domain_name: str) -> Result:
        """Activate and start an entry."""
        try:
            entry = self._entries.load(domain_name)
            if not entry['active']:
                entry['active'] = True
                self._entries.store(entry)
            self._start(entry)
        except upstream.VirtualBMCError as exc:
            return 1, str(exc)
        if domain_name in self._failures:
            return 1, self._failures[domain_name]
        return 0, ''

    def stop(self, domain_name: str) -> Result:
        """Deactivate and stop an entry."""
        try:
            entry = self._entries.load(domain_name)
            if entry['active']:
                entry['active'] = False
                self._entries.store(entry)
            self._stop(entry)
        except upstream.VirtualBMCError as exc:
            return 1, str(exc)
        return 0, ''

    def list(self) -> tuple[int, Entries]:
        """Return the exit code and what there is to show of all entries."""
        return 0, [self._show(name) for name in self._entries.names()]

    def show(self, domain_name: str) -> tuple[int, Pairs]:
        """Return the exit code, and options of an entry with their values."""
        return 0, list(self._show(domain_name, load=True).items())

    def periodic(self, shutdown: bool = False) -> None:
        """Start active entries that do not run; on shutdown stop all."""
        if shutdown:
            for driver in self._drivers.values():
                driver.close()
            return
        for name in self._entries.names():
            try:
                entry = self._entries.load(name)
                if entry['active']:
                    self._start(entry)
            except upstream.VirtualBMCError as exc:
                self._record_failure(name, exc)
            except Exception as exc:
                # An error in one driver must not stop other BMCs.
                LOG.debug('%s', name, exc_info=True)
                self._record_failure(name, f'{type(exc).__name__}: {exc}')

    # Implementation

    def _start(self, entry: entries.Entry) -> None:
        """Start an entry unless it runs; store the error if that fails."""
        name = entry['domain_name']
        try:
            started = self._driver_of(entry).start(entry)
        except upstream.VirtualBMCError as exc:
            self._record_failure(name, exc)
            return
        self._failures.pop(name, None)
        if started:
            LOG.info('%s: started', name)

    def _stop(self, entry: entries.Entry) -> None:
        name = entry['domain_name']
        self._failures.pop(name, None)
        if self._driver_of(entry).stop(name):
            LOG.info('%s: stopped', name)

    def _record_failure(self, name: str, exc: Exception | str) -> None:
        # Retried every few seconds: log a failure only when it changes.
        if self._failures.get(name) != str(exc):
            LOG.error('%s: %s', name, exc)
        self._failures[name] = str(exc)

    def _show(self, name: str, load: bool = False) -> entries.Entry:
        """Return what there is to show of an entry.

        :param load: whether to raise an error for an unreadable entry
        """
        try:
            entry = self._entries.load(name)
        except upstream.VirtualBMCError as exc:
            if load:
                raise
            return {'domain_name': name, 'status': upstream.ERROR,
                    'problem': str(exc)}
        shown = upstream.mask(entry)
        shown.setdefault('driver', UNNAMED_DRIVER)
        status, problem = upstream.DOWN, ''
        if name in self._failures:
            status, problem = upstream.ERROR, self._failures[name]
        elif entry['active']:
            status, problem = self._driver_of(entry).state(name)
        shown['status'] = status
        if problem:
            shown['problem'] = problem
        return shown
