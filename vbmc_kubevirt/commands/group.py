# SPDX-License-Identifier: Apache-2.0
"""Groups of IPMI commands: the base of the classes of this package."""

from __future__ import annotations

from collections import abc
import typing

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants
from vbmc_kubevirt.ipmi import server

if typing.TYPE_CHECKING:
    from vbmc_kubevirt import bmc

Bmc: typing.TypeAlias = 'bmc.Bmc'
_MethodT = typing.TypeVar('_MethodT', bound=abc.Callable[..., typing.Any])


def command(number: int, name: str, privilege: int, min_length: int = 0,
            netfn: int | None = None, **options: typing.Any
            ) -> abc.Callable[[_MethodT], _MethodT]:
    """Declare a method of a `Group` to handle a command.

    The method takes the session and the request data, and returns response
    data, or None for none. It may raise `completion.RequestError`, and unless
    it is inline `errors.MachineError`. It may have several declarations.

    :param name: see `server.Command`, as for the other arguments
    :param netfn: network function, if it is not that of the group
    :param options: ``modifies``, ``inline`` and ``begun``, the latter being
        a function of the class
    """
    def declare(method: _MethodT) -> _MethodT:
        vars(method).setdefault('commands', []).append(
            ((netfn, number), dict(options, name=name, privilege=privilege,
                                   min_length=min_length)))
        return method
    return declare


class Group:
    """Commands of one BMC with a common network function.

    :cvar inline: whether its commands do not use the machine, so that they
        are handled in the event loop
    """

    netfn: int
    inline = False

    def __init__(self, bmc: Bmc) -> None:
        self._bmc = bmc

    def release(self) -> None:
        """Warm or cold reset: drop the state that belongs to clients."""

    def commands(self) -> dict[channel.Code, server.Command]:
        """Return the commands that the methods handle."""
        return {
            (self.netfn if netfn is None else netfn, number):
                self._command(method, **options)
            for method in vars(type(self)).values()
            for (netfn, number), options in getattr(method, 'commands', ())}

    def _command(self, method: abc.Callable[..., bytes | None],
                 **options: typing.Any) -> server.Command:
        inline = options.setdefault('inline', self.inline)
        handle: completion.Handle = method.__get__(self)
        if 'begun' in options:
            options['begun'] = options['begun'].__get__(self)
        return server.Command(
            handler=self._wrap(handle, inline), **options)

    def _wrap(self, handle: completion.Handle,
              inline: bool) -> channel.Handler:
        """Turn exceptions into completion codes."""
        if not inline:
            return self._bmc.map_errors(handle)

        def wrapper(session: channel.Session, data: bytes
                    ) -> channel.Response:
            try:
                return constants.Completion.OK, handle(session, data) or b''
            except completion.RequestError as exc:
                return exc.code, b''
        return wrapper
