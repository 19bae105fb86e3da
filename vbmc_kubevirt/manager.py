# SPDX-License-Identifier: Apache-2.0
"""What ``vbmc`` asks of the daemon, handed to the driver of each entry.

Stands where virtualbmc's ``VirtualBMCManager`` stands and has its methods,
but knows no hypervisor. Which entries run is in their config files, as
upstream has it; here it is only seen to that it is so.
"""

import logging

from vbmc_kubevirt import drivers
from vbmc_kubevirt import entries
from vbmc_kubevirt import upstream

LOG = logging.getLogger(__name__)

#: What every driver's entries have; the rest is the drivers' own.
COMMON = ('domain_name', 'username', 'password', 'address', 'port')

#: Entries without a driver are from before there were any.
UNNAMED_DRIVER = 'libvirt'

#: Columns of ``vbmc list``: title and key.
COLUMNS = (('Domain name', 'domain_name'), ('Status', 'status'),
           ('Address', 'address'), ('Port', 'port'), ('Driver', 'driver'))


class Manager:
    """All entries of a daemon."""

    def __init__(self):
        self._entries = entries.Entries(
            upstream.CONF['default']['config_dir'])
        self._classes = drivers.load()
        self._drivers = {}
        self._failures = {}
        self._default = upstream.section('drivers').get(
            'default', UNNAMED_DRIVER)
        self._class(self._default)
        # Configuration that cannot be used is told at start.
        self._driver(self._default)

    def _class(self, name):
        try:
            return self._classes[name]
        except KeyError:
            raise upstream.VirtualBMCError(
                'There is no driver %s; installed are: %s'
                % (name, ', '.join(sorted(self._classes))))

    def _driver(self, name):
        """The driver of a name, made when it is first needed."""
        if name not in self._drivers:
            self._drivers[name] = self._class(name)()
        return self._drivers[name]

    def _driver_of(self, entry):
        return self._driver(entry.get('driver', UNNAMED_DRIVER))

    # What control calls

    def add(self, domain_name, port, driver=None, **options):
        """Add an entry, which does not run yet.

        :param options: what ``vbmc add`` was given, for whatever driver
        :returns: (exit code, message)
        """
        driver = driver or self._default
        try:
            own = self._class(driver).options
            for other, kind in self._classes.items():
                for option in kind.chosen:
                    if options.get(option) is not None and option not in own:
                        raise upstream.VirtualBMCError(
                            '--%s is for the driver %s, this BMC has %s'
                            % (option, other, driver))
            entry = dict.fromkeys(COMMON) | options | {
                'domain_name': domain_name,
                'port': entries.port_number(port)}
            entry = {option: entry.get(option) for option in COMMON + own}
            # The folder's name, before anybody is asked.
            self._entries.path(domain_name)
            entry = self._driver(driver).check(entry)
            self._entries.create(entry | {'driver': driver, 'active': False})
        except (upstream.VirtualBMCError, ValueError) as exc:
            LOG.error('%s was not added: %s', domain_name, exc)
            return 1, str(exc)
        return 0, ''

    def delete(self, domain_name):
        """Stop and forget an entry. :returns: (exit code, message)"""
        rc, message = self.stop(domain_name)
        if rc:
            return rc, message
        self._entries.remove(domain_name)
        return 0, ''

    def start(self, domain_name):
        """Have an entry run from now on. :returns: (exit code, message)"""
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

    def stop(self, domain_name):
        """Have an entry not run any more. :returns: (exit code, message)"""
        try:
            entry = self._entries.load(domain_name)
            if entry['active']:
                entry['active'] = False
                self._entries.store(entry)
            self._stop(entry)
        except upstream.VirtualBMCError as exc:
            return 1, str(exc)
        return 0, ''

    def list(self):
        """:returns: (exit code, list of dicts, one for each entry)"""
        return 0, [self._show(name) for name in self._entries.names()]

    def show(self, domain_name):
        """:returns: (exit code, list of pairs)"""
        return 0, list(self._show(domain_name, load=True).items())

    def periodic(self, shutdown=False):
        """Start what should run and does not; stop all for a shutdown."""
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
                self._fail(name, exc)
            except Exception as exc:
                # A fault of one driver is no end of the others' BMCs.
                LOG.debug('%s', name, exc_info=True)
                self._fail(name, f'{type(exc).__name__}: {exc}')

    # Behind it

    def _start(self, entry):
        """Start an entry unless it runs; what it fails of is kept."""
        name = entry['domain_name']
        try:
            started = self._driver_of(entry).start(entry)
        except upstream.VirtualBMCError as exc:
            self._fail(name, exc)
            return
        self._failures.pop(name, None)
        if started:
            LOG.info('%s: started', name)

    def _stop(self, entry):
        name = entry['domain_name']
        self._failures.pop(name, None)
        if self._driver_of(entry).stop(name):
            LOG.info('%s: stopped', name)

    def _fail(self, name, exc):
        # What is tried again every few seconds is told when it changes.
        if self._failures.get(name) != str(exc):
            LOG.error('%s: %s', name, exc)
        self._failures[name] = str(exc)

    def _show(self, name, load=False):
        """:param load: an entry that cannot be read is an error"""
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
