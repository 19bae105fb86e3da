# SPDX-License-Identifier: Apache-2.0
"""virtualpdu with a driver for the VMs of a namespace.

Valid for virtualpdu 2.2.0 and pysnmp-lextudio 5.0.34.

An outlet that is switched off is a plug that is pulled: the guest ends at
once. One that is switched on starts the VM, whatever its power restore policy,
as a server that is set to power on when power returns: Ironic expects that.
"""

from __future__ import annotations

from collections import abc
from concurrent import futures
import importlib.util
import logging
import socket
import sys
import threading
import types
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_state

if typing.TYPE_CHECKING:
    import configparser

    from sushy_kubevirt.machine import cluster

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

from pysnmp.smi import error as smi_error  # noqa: E402
from virtualpdu import core  # noqa: E402
from virtualpdu.pdu import apc_rackpdu  # noqa: E402
from virtualpdu.pdu import pysnmp_handler  # noqa: E402

LOG = logging.getLogger(__name__)

# At INFO, it logs values that clients send, with newlines.
logging.getLogger(pysnmp_handler.__name__).setLevel(logging.WARNING)

_OFF = power_state.PowerState.OFF, power_state.PowerState.POWERING_OFF


class KubeVirtDriver:
    """What virtualpdu calls. All may raise `errors.MachineError`.

    :param machines: of one namespace
    """

    def __init__(self, machines: cluster.Cluster) -> None:
        self._machines = machines

    def power_on(self, name: str) -> None:
        """Start a VM, also one that is stopping."""
        self._machine(name).reset(power_state.ResetType.ON)

    def power_off(self, name: str) -> None:
        """Stop a VM at once."""
        self._machine(name).reset(power_state.ResetType.FORCE_OFF)

    def get_power_state(self, name: str) -> str:
        """Read the state from the cache: no API call delays the answer.

        :returns: a state of virtualpdu's core
        :raises: `errors.Unavailable` if the cache is stale
        """
        if problem := self._machines.cache.problem:
            raise errors.Unavailable(problem)
        is_off = self._machine(name).power_state() in _OFF
        return str(core.POWER_OFF if is_off else core.POWER_ON)

    def _machine(self, name: str) -> cluster.Machine:
        return self._machines.machine(
            f'{self._machines.default_namespace}/{name}', wait=False)


class Outlets(core.Core):
    """virtualpdu's core, whose outlets have the state of their VMs.

    Upstream's has one thread for all commands, in which a VM that takes long
    delays the others and exceptions are lost. It reads a state once, and then
    answers with the last command.
    """

    def __init__(self, driver: KubeVirtDriver,
                 mapping: abc.Mapping[tuple[str, int], str],
                 default_state: str) -> None:
        super().__init__(driver, mapping, {}, default_state)
        # Upstream calls its method submit.
        self.executor = self
        self._threads = {vm: futures.ThreadPoolExecutor(1, f'outlet of {vm}')
                         for vm in mapping.values()}
        self._last: dict[str, tuple[str, futures.Future[None]]] = {}

    def submit(self, switch: abc.Callable[[str, str], None], command: str,
               vm: str) -> None:
        """Queue a command; ignore a repeated request for the last one."""
        if self._pending(vm) != command:
            self._last[vm] = command, self._threads[vm].submit(
                self._run, switch, command, vm)

    def get_pdu_outlet_state(self, pdu: str, outlet: int) -> str:
        """Return the state of an outlet.

        :raises: pysnmp's SmiError, which becomes ``genErr``
        """
        vm = self.mapping.get((pdu, outlet))
        if vm is None:
            return str(super().get_pdu_outlet_state(pdu, outlet))
        if self._pending(vm) in (core.POWER_ON, core.REBOOT):
            # The guest may have to end first, for longer than Ironic waits.
            # An outlet that is switched on has power at once.
            return str(core.POWER_ON)
        try:
            return str(self.driver.get_power_state(vm))
        except errors.MachineError as exc:
            LOG.warning('PDU %s, outlet %s: %s', pdu, outlet, exc)
            raise smi_error.SmiError(str(exc)) from exc

    def _pending(self, vm: str) -> str | None:
        command, future = self._last.get(vm, (None, None))
        return command if future and not future.done() else None

    def _run(self, switch: abc.Callable[[str, str], None], command: str,
             vm: str) -> None:
        try:
            switch(command, vm)
        except Exception as exc:
            LOG.error('%s: %s failed: %s', vm, command, exc,
                      exc_info=not isinstance(exc, errors.MachineError))


def serve(section: configparser.SectionProxy, outlets: Outlets) -> None:
    """Serve a PDU from now on, in a daemon thread.

    :param section: its options, see `config.read`
    :raises: `errors.MachineError` if the port cannot be opened
    """
    options: dict[str, typing.Any] = dict(section)
    address = options.pop('listen_address'), int(options.pop('listen_port'))
    options['snmp_versions'] = [
        version.strip() for version in options['snmp_versions'].split(',')]
    for name in 'engine_id', 'context_engine_id':
        options[name] = options.get(name, '').removeprefix('0x') or None
    try:
        # pysnmp's socket has SO_REUSEADDR: it would share a port in use.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(address)
    except (OSError, OverflowError) as exc:
        raise errors.MachineError(
            f'[{section.name}]: {address[0]}:{address[1]}: {exc}') from None
    unit = apc_rackpdu.APCRackPDU(section.name, outlets)
    dispatcher = pysnmp_handler.create_snmp_engine(
        unit, *address, **options).transportDispatcher
    dispatcher.jobStarted(1)
    threading.Thread(target=_run, args=[dispatcher], daemon=True).start()
    LOG.info('PDU %s listens at %s:%d', section.name, *address)


def _run(dispatcher: typing.Any) -> None:
    while True:
        try:
            dispatcher.runDispatcher()
        except Exception:
            # Anybody can send such messages: they must not fill the log.
            LOG.debug('A message was dropped', exc_info=True)
