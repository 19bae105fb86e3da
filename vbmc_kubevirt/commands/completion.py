# SPDX-License-Identifier: Apache-2.0
"""Completion codes for errors of commands."""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.bmc import accounts
from sushy_kubevirt.kube import errors
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants

#: A handler that returns response data, or None for none, and may raise
#: `RequestError`.
Handle: typing.TypeAlias = abc.Callable[
    [channel.Session, bytes], bytes | None]

#: Completion code for each error type; the first match applies.
COMPLETION_CODES = (
    (errors.MachineNotFound, constants.Completion.NOT_PRESENT),
    (errors.AmbiguousName, constants.Completion.NOT_PRESENT),
    (accounts.NotFound, constants.Completion.NOT_PRESENT),
    (accounts.Replaced, constants.Completion.WRONG_STATE),
    (errors.WrongState, constants.Completion.WRONG_STATE),
    (errors.Rejected, constants.Completion.WRONG_STATE),
    (errors.Unsupported, constants.Completion.UNAVAILABLE),
    (errors.InvalidValue, constants.Completion.INVALID_FIELD),
    (errors.AccessDenied, constants.Completion.ACCESS_DENIED),
    (errors.Unavailable, constants.Completion.NODE_BUSY),
    (errors.ConfigError, constants.Completion.NO_RESPONSE),
    (errors.MachineError, constants.Completion.UNSPECIFIED),
)


class RequestError(Exception):
    """The request itself is invalid."""

    def __init__(self, code: constants.Completion) -> None:
        super().__init__(code)
        self.code = code


def refuse_if(condition: object, code: constants.Completion) -> None:
    """Raise `RequestError` with a code if a condition holds."""
    if condition:
        raise RequestError(code)


def code_of(error: errors.MachineError) -> constants.Completion:
    """Look up the completion code for an error."""
    return next(code for kind, code in COMPLETION_CODES
                if isinstance(error, kind))


def check_channel(number: int) -> None:
    """Raise `RequestError` unless a channel is the LAN channel.

    :param number: request byte with the channel number in bits 0 to 3
    """
    refuse_if(number & 0x0f not in (channel.CHANNEL, channel.THIS_CHANNEL),
              constants.Completion.INVALID_FIELD)
