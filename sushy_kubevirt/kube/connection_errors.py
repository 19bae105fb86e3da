# SPDX-License-Identifier: Apache-2.0
"""Errors of connections to the API server. Loaded when the first one fails."""

from __future__ import annotations

import re
import typing

import urllib3

from sushy_kubevirt.kube import errors

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_responses


def unavailable(call: api_responses.ApiCall, server: str,
                error: Exception) -> errors.Unavailable:
    """Return the exception for a failed connection."""
    e = urllib3.exceptions
    message = (f'The API server {server} does not answer ({call}): '
               f'{reason(error)}')
    if isinstance(error, e.ConnectTimeoutError):
        message += f'; {errors.FILTERED}'
    if isinstance(error, (e.NewConnectionError, e.ConnectTimeoutError,
                          e.ProxyError, e.LocationValueError)):
        return errors.Unavailable(message)
    if isinstance(error, e.TimeoutError):
        return errors.Unavailable(message, maybe_done=call.verb != 'get')
    return errors.ConnectionLost(message, maybe_done=call.verb != 'get')


def reason(error: BaseException) -> str:
    """Return the text of the innermost of nested exceptions."""
    for inner in (getattr(error, 'reason', None), error.__cause__,
                  *reversed(error.args)):
        if isinstance(inner, Exception):
            return reason(inner)
    text = str(error)
    # urllib3's messages begin with the repr of its connection.
    return re.sub(r"^<?[\w.]+\([^)]*\)( at 0x\w+>)?: ", '', text) or repr(
        error)
