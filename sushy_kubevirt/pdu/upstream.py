# SPDX-License-Identifier: Apache-2.0
"""Access to virtualpdu's internals, with the reason for each.

Valid for virtualpdu 2.2.0 and pysnmp-lextudio 5.0.34. The unit test of this
module fails when upstream changes one of these places.
"""

from __future__ import annotations

from collections import abc
from concurrent import futures
import importlib.util
import logging
import socket
import sys
import types
import typing

from sushy_kubevirt.kube import errors

# The driver for libvirt, which is not used, imports it.
sys.modules.setdefault('libvirt', types.ModuleType('libvirt'))

# pysnmp-lextudio 5.0 imports a module that pyasn1 0.6.1 has removed.
if not importlib.util.find_spec('pyasn1.compat.octets'):
    _octets = types.ModuleType('pyasn1.compat.octets')
    vars(_octets).update(
        null=b'', int2oct=lambda number: bytes((number,)),
        oct2int=lambda octet: octet[0], octs2ints=list, ints2octs=bytes,
        str2octs=str.encode, octs2str=bytes.decode,
        isStringType=lambda value: isinstance(value, str),
        isOctetsType=lambda value: isinstance(value, bytes))
    sys.modules[_octets.__name__] = _octets

from pysnmp import error as pysnmp_error  # noqa: E402
from pysnmp.smi import error as smi_error  # noqa: E402
from virtualpdu import core  # noqa: E402
from virtualpdu import main  # noqa: E402
from virtualpdu.pdu import pysnmp_handler  # noqa: E402

LOG = logging.getLogger(__name__)

POWER_ON, POWER_OFF = core.POWER_ON, core.POWER_OFF


class Commands:
    """A thread for each device, which carries out its commands in order.

    It is Core's ``executor`` in place of one thread for all outlets, in which
    a VM that takes long delays the others, and exceptions are lost.
    """

    def __init__(self) -> None:
        self._threads: dict[str, futures.ThreadPoolExecutor] = {}
        self._last: dict[str, tuple[str, futures.Future[None]]] = {}

    def submit(self, switch: abc.Callable[[str, str], None], command: str,
               device: str) -> None:
        """Queue a command; ignore a repeated request for the last one."""
        if self.pending(device) != command:
            thread = self._threads.setdefault(
                device, futures.ThreadPoolExecutor(1, f'outlet of {device}'))
            self._last[device] = command, thread.submit(
                self._run, switch, command, device)

    def pending(self, device: str) -> str | None:
        """Return the last command if it is not carried out yet."""
        command, future = self._last.get(device, (None, None))
        return command if future and not future.done() else None

    def close(self) -> None:
        """Wait for all commands."""
        for thread in self._threads.values():
            thread.shutdown()

    def _run(self, switch: abc.Callable[[str, str], None], command: str,
             device: str) -> None:
        try:
            switch(command, device)
        except errors.MachineError as exc:
            LOG.error('%s: %s failed: %s', device, command, exc)
        except Exception:
            LOG.exception('%s: %s failed', device, command)


class Core(core.Core):
    """Core whose outlets have the state of their VMs.

    Upstream's reads a device once, and from then on answers with the last
    command, even if it failed. Exceptions of its driver end the PDU.
    """

    def __init__(self, *arguments: typing.Any, **options: typing.Any) -> None:
        super().__init__(*arguments, **options)
        self.executor = _commands

    def get_pdu_outlet_state(self, pdu: str, outlet: int) -> str:
        """Return the state of an outlet.

        :raises: pysnmp's SmiError, which becomes ``genErr``
        """
        device = self.mapping.get((pdu, outlet))
        if device is None:
            return str(super().get_pdu_outlet_state(pdu, outlet))
        if core.FINAL_STATES.get(_commands.pending(device)) == POWER_ON:
            # The guest may have to end first, for longer than Ironic waits.
            # An outlet that is switched on has power at once.
            return POWER_ON
        try:
            return str(self.driver.get_power_state(device))
        except errors.MachineError as exc:
            LOG.warning('PDU %s, outlet %s: %s', pdu, outlet, exc)
            raise smi_error.SmiError(str(exc)) from exc


def _create_snmp_engine(power_unit: object, address: str, port: int,
                        **options: typing.Any) -> typing.Any:
    """Create an engine that survives malformed messages.

    Upstream's thread ends with the exceptions of pyasn1 that some raise. Its
    socket has SO_REUSEADDR, by which it would share a port that is in use.

    :raises: `errors.MachineError` if the port cannot be opened
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, port))
    except OSError as exc:
        raise errors.MachineError(f'{address}:{port}: {exc.strerror}') from exc
    engine = _upstream_engine(power_unit, address, port, **options)
    run = engine.transportDispatcher.runDispatcher

    def run_on() -> None:
        while True:
            try:
                return run()
            except Exception:
                # Anybody can send them, so they must not fill the log.
                LOG.debug('A message was dropped', exc_info=True)

    engine.transportDispatcher.runDispatcher = run_on
    return engine


_upstream_engine = pysnmp_handler.create_snmp_engine
_commands = Commands()


def run(driver: object, path: str) -> None:
    """Serve the PDUs of a file until KeyboardInterrupt.

    ``main.main`` reads ``sys.argv``, and has no hook for another driver.

    :param driver: with the methods of ``virtualpdu.drivers.Driver``
    :raises: `errors.MachineError` for what upstream finds wrong
    """
    main.get_driver_from_config = lambda _config: driver
    core.Core = Core
    pysnmp_handler.create_snmp_engine = _create_snmp_engine
    sys.argv[1:] = [path]
    try:
        main.main()
    except KeyError as exc:
        # auth_protocol or priv_protocol
        raise errors.ConfigError(f'{path}: unknown protocol {exc}') from None
    except (main.UnableToParseConfig, pysnmp_error.PySnmpError, ValueError
            ) as exc:
        raise errors.MachineError(f'{path}: {exc}') from None
    finally:
        _commands.close()
