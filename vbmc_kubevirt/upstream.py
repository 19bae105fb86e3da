# SPDX-License-Identifier: Apache-2.0
"""Access to virtualbmc's internals, with the reason for each.

Valid for virtualbmc 3.3.0. All other modules use only virtualbmc's config,
logger and exceptions. The unit test of this module fails when upstream
changes one of these places.
"""

from __future__ import annotations

from collections import abc
import importlib
import logging
import os
import sys
import types
import typing


class _LazyModule(types.ModuleType):
    """Module that is imported on first attribute access.

    Unlike with `sushy_kubevirt.pod.lazy_modules`, it need not be installed.
    """

    def __getattr__(self, name: str) -> typing.Any:
        # Introspection of all modules asks for special attributes.
        if name.startswith('__'):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _import_without_libvirt() -> None:
    """Import virtualbmc without libvirt and pyghmi.

    `utils` and `vbmc` import libvirt, `vbmc` also imports pyghmi, and
    `manager`, which `control` needs, imports `vbmc`. They take a third of the
    daemon's memory and KubeVirt VMs do not need them. `load_libvirt` imports
    them when a libvirt domain is started.
    """
    sys.modules.setdefault('libvirt', _LazyModule('libvirt'))
    if 'virtualbmc.manager' not in sys.modules:
        name = 'virtualbmc.vbmc'
        placeholder = types.ModuleType(name)
        setattr(placeholder, 'VirtualBMC', None)
        sys.modules[name] = placeholder
        try:
            importlib.import_module('virtualbmc.manager')
        finally:
            del sys.modules[name]


_import_without_libvirt()

from virtualbmc.cmd import vbmcd  # noqa: E402
from virtualbmc import config  # noqa: E402
from virtualbmc import control  # noqa: E402
from virtualbmc import exception  # noqa: E402
from virtualbmc import log  # noqa: E402
from virtualbmc import manager  # noqa: E402
from virtualbmc import utils  # noqa: E402

LOG = log.get_logger()
CONF = config.get_config()

#: Entry states and the section of their config file (module level of
#: `manager`).
RUNNING, DOWN, ERROR = manager.RUNNING, manager.DOWN, manager.ERROR
SECTION = manager.DEFAULT_SECTION

VirtualBMCError = exception.VirtualBMCError
DomainNotFound = exception.DomainNotFound


class Manager(typing.Protocol):
    """What `control` and `run` call, see `manager.VirtualBMCManager`."""

    def list(self) -> tuple[int, typing.Any]:
        """Return the exit code, and the columns of each entry by key."""


def section(name: str) -> dict[str, str]:
    """Read a section of the config file.

    `VirtualBMCConfig` keeps the values of unknown sections as strings, and has
    no method that tells whether a section exists.

    :param name: name of the section
    :returns: empty if the file has no such section
    """
    try:
        return dict(CONF[name])
    except KeyError:
        return {}


def run(manager_class: type[Manager],
        header: abc.Iterable[tuple[str, str]], argv: list[str]) -> int:
    """Run upstream's daemon with another manager.

    `control.application` uses the names `VirtualBMCManager` and
    `command_dispatcher` of its module when it starts, which are replaced here
    because upstream has no hooks.

    :param manager_class: has the methods of `manager.VirtualBMCManager` that
        `control` calls: add, delete, start, stop, list, show, periodic
    :param header: titles and keys for the table of ``vbmc list``
    :param argv: words, without the program's name
    :returns: exit code
    """
    dispatch = control.command_dispatcher
    application = control.application

    def command_dispatcher(
            instance: Manager,
            data: dict[str, typing.Any]) -> dict[str, typing.Any]:
        # Upstream's columns are fixed, and an exception of another type than
        # upstream's would end the daemon with all its BMCs.
        try:
            if data.get('command') == 'list':
                rc, tables = instance.list()
                return {'rc': rc, 'header': [title for title, _key in header],
                        'rows': [[str(table.get(key, ''))
                                  for _title, key in header]
                                 for table in tables]}
            return dispatch(instance, data)
        except exception.VirtualBMCError:
            raise
        except Exception as exc:
            LOG.exception('A command failed')
            return {'rc': 1, 'msg': [f'{type(exc).__name__}: {exc}']}

    def prepared_application() -> None:
        # `utils.detach_process` clears the umask, and config files hold
        # passwords.
        os.umask(0o077)
        _correct_pid_file()
        application()

    control.VirtualBMCManager = manager_class
    control.command_dispatcher = command_dispatcher
    control.application = prepared_application
    LOG.addFilter(_mask_request)
    _adopt_logger()
    return vbmcd.main(argv)


def run_client(argv: list[str]) -> int:
    """Run upstream's ``vbmc``, for which this module has deferred libvirt.

    :param argv: list of words, without the program's name
    :returns: exit code
    """
    # The daemon needs none of it.
    client = importlib.import_module('virtualbmc.cmd.vbmc')
    return client.main(argv)


def _correct_pid_file() -> None:
    # A detached daemon writes 0, the return value of fork in the child.
    path = CONF['default']['pid_file']
    with open(path, 'r+') as f:
        if f.read().strip() == '0':
            f.seek(0)
            f.write(str(os.getpid()))


def _mask_request(record: logging.LogRecord) -> bool:
    # With debug on, `control.main_loop` logs requests and responses, which may
    # contain passwords.
    if isinstance(record.args, dict):
        record.args = {
            key: utils.mask_dict_password(value)
            if isinstance(value, dict) else value
            for key, value in record.args.items()}
    return True


def _adopt_logger() -> None:
    # `VirtualBMCLogger` is not part of logging's hierarchy, so messages of
    # this package and of the machine package would be lost.
    for name in 'vbmc_kubevirt', 'sushy_kubevirt':
        logger = logging.getLogger(name)
        logger.setLevel(LOG.level)
        logger.propagate = False
        for handler in LOG.handlers:
            logger.addHandler(handler)


def load_libvirt() -> None:
    """Import the modules that serve libvirt domains.

    Call it before forking the processes of domains, which then share the
    modules' memory.

    :raises: `VirtualBMCError` if libvirt is not installed
    """
    try:
        vbmc = importlib.import_module('virtualbmc.vbmc')
    except ImportError as exc:
        raise VirtualBMCError(f'libvirt is not usable: {exc}')
    manager.VirtualBMC = vbmc.VirtualBMC


def serve_libvirt(entry: dict[str, typing.Any]) -> None:
    """Serve a libvirt domain until the process ends.

    `manager.vbmc_runner` is what upstream's own processes run.

    :param entry: the options `vbmc.VirtualBMC` takes
    """
    manager.vbmc_runner(entry)


def check_libvirt(entry: dict[str, typing.Any]) -> None:
    """Check with libvirt that a domain exists.

    :param entry: the entry's options
    :raises: `VirtualBMCError`
    """
    load_libvirt()
    utils.check_libvirt_connection_and_domain(
        entry['libvirt_uri'], entry['domain_name'],
        sasl_username=entry.get('libvirt_sasl_username'),
        sasl_password=entry.get('libvirt_sasl_password'))


def mask(entry: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """Return an entry, with masked passwords unless show_passwords is on."""
    if CONF['default']['show_passwords']:
        return entry
    return utils.mask_dict_password(entry)
