# SPDX-License-Identifier: Apache-2.0
"""Bodies of multipart HTTP push updates (DSP0266), read while they arrive.

multipart/form-data (RFC 7578): parts with JSON objects, then one with a file.
The file is not stored: memory use does not depend on its size.
"""

from __future__ import annotations

import json
import typing

import flask
from werkzeug import exceptions
from werkzeug.sansio import multipart

from sushy_kubevirt.kube import errors
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload

if typing.TYPE_CHECKING:
    from sushy_kubevirt.redfish.protocol import responses

CONTENT_TYPE = 'multipart/form-data'

#: Bytes that are read at once.
PIECE = 2 ** 16

#: Maximum bytes of what is not the file: lines of a part, a JSON object.
_MAX_BYTES = 2 ** 16

#: Maximum number of parts.
_MAX_PARTS = 8

#: Maximum characters of a file name (NAME_MAX of Linux).
_MAX_NAME = 255

#: Seconds to wait for a piece, of servers that do not limit it themselves.
_PIECE_SECONDS = 60


class Form:
    """The form in the body of the present request.

    `read_head` reads up to the file, then `readinto` the file.

    :param parameters: name of the part with a JSON object, optional in a form
    :param file: name of the part with the file, the last one
    :raises: `error_responses.RedfishError`, 411, 415
    :ivar values: the JSON object
    :ivar name: name of the file, without folders and control characters
    :ivar head: the first bytes of the file, at least as many as requested if
        it has as many
    """

    def __init__(self, parameters: str, file: str) -> None:
        request = flask.request
        boundary = request.mimetype_params.get('boundary')
        if request.mimetype != CONTENT_TYPE or not boundary:
            raise error_responses.base_error(
                415, 'HeaderInvalid',
                f"Content-Type: {request.content_type or ''}",
                resolution=f'Send {CONTENT_TYPE} with a boundary.')
        if (request.content_length is None
                and 'HTTP_TRANSFER_ENCODING' not in request.environ):
            raise error_responses.general_error(
                411, 'The request has no body of a known length.',
                'Send Content-Length, or a chunked body.')
        connection = (request.environ.get('werkzeug.socket')
                      or request.environ.get('gunicorn.socket'))
        if connection is not None:
            connection.settimeout(_PIECE_SECONDS)
        self._parameters = parameters
        self._file = file
        self._stream = request.stream
        self._decoder = multipart.MultipartDecoder(
            boundary.encode(), _MAX_BYTES + PIECE, max_parts=_MAX_PARTS)
        self.values: responses.Json = {}
        self.name = ''
        self.head = b''
        self._more = True

    def read_head(self, amount: int) -> None:
        """Read up to the file and its first bytes.

        :param amount: number of bytes
        :raises: `errors.InvalidValue`; `error_responses.RedfishError`, 400,
            for a JSON object
        """
        while True:
            event = self._next()
            if isinstance(event, multipart.Epilogue):
                raise self._error(f'the form has no part {self._file}')
            if not isinstance(event, (multipart.Field, multipart.File)):
                continue
            if event.name == self._file:
                break
            if event.name != self._parameters:
                raise self._error(
                    f'the part {messages.truncate(str(event.name))} is '
                    f'unknown; send {self._parameters}, if it is needed, and '
                    f'then {self._file}')
            self.values = self._object()
        self.name = _file_name(getattr(event, 'filename', ''))
        if not self.name or len(self.name) > _MAX_NAME:
            self.name = ''
            raise self._error('it needs a file name of 1 to '
                              f'{_MAX_NAME} characters')
        while len(self.head) < amount and (piece := self._piece()):
            self.head += piece

    def readinto(self, buffer: memoryview) -> int:
        """Read a piece of the file, beginning with `head`.

        :param buffer: at least 4 * `PIECE` bytes to fill
        :returns: number of bytes; 0 at the end
        :raises: `errors.InvalidValue`
        """
        piece, self.head = self.head or self._piece(), b''
        if not piece and not isinstance(self._next(), multipart.Epilogue):
            raise self._error(f'{self._file} must be the last part')
        buffer[:len(piece)] = piece
        return len(piece)

    def _object(self) -> responses.Json:
        text = b''
        while piece := self._piece():
            text += piece
            if len(text) > _MAX_BYTES:
                raise self._error(f'{self._parameters} is too long')
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise error_responses.base_error(
                400, 'MalformedJSON',
                detail=f'The part {self._parameters} must be a JSON object.')
        payload.require_text(values)
        self._more = True
        return values

    def _piece(self) -> bytes:
        """Return some bytes of the present part; b'' at its end."""
        while self._more:
            event = self._next()
            assert isinstance(event, multipart.Data), 'it follows a head'
            self._more = event.more_data
            if event.data:
                return event.data
        return b''

    def _next(self) -> multipart.Event:
        """Return the next event of the decoder, after reading as necessary."""
        try:
            while isinstance(event := self._decoder.next_event(),
                             multipart.NeedData):
                self._decoder.receive_data(self._stream.read(PIECE) or None)
        except UnicodeError:
            raise self._error('the lines of a part are not UTF-8') from None
        except ValueError:
            raise self._error('the body ends early, or a part of it is not '
                              f'valid {CONTENT_TYPE}') from None
        except exceptions.RequestEntityTooLarge:
            raise self._error('the lines of a part are too long') from None
        except (OSError, exceptions.ClientDisconnected):
            raise self._error(
                'the client has disconnected, or sent nothing for '
                f'{_PIECE_SECONDS} s') from None
        return event

    def _error(self, text: str) -> errors.InvalidValue:
        return errors.InvalidValue(
            self._file, self.name,
            message=f'{self.name or self._file} was not received: {text}')


def _file_name(name: str) -> str:
    """Return the last part of a path, without unprintable characters."""
    name = name.replace('\\', '/').rpartition('/')[2]
    return ''.join(filter(str.isprintable, name)).strip()
