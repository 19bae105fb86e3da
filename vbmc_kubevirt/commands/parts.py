# SPDX-License-Identifier: Apache-2.0
"""Texts that clients read, and those that they write in several requests."""

from __future__ import annotations

import codecs
import weakref

from vbmc_kubevirt.commands import completion
from vbmc_kubevirt.ipmi import channel
from vbmc_kubevirt.ipmi import constants


def printable(text: str) -> str:
    """Return a text for the terminal of a client.

    :param text: such as one that a guest or another client has chosen
    :returns: the text with ``?`` for each control character
    """
    return ''.join(character if character.isprintable() else '?'
                   for character in text)


def cut(text: str, most: int) -> bytes:
    """Encode a text, without the characters beyond a number of bytes."""
    return text.encode()[:most].decode(errors='ignore').encode()


def decode(data: bytes, encoding: str = 'utf-8', final: bool = True) -> str:
    """Decode a text, without NULs at its end.

    :param final: whether its last character must be complete
    :raises: `completion.RequestError` if it is no printable text
    """
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data, final)
    except UnicodeDecodeError:
        raise completion.RequestError(
            constants.Completion.INVALID_FIELD) from None
    text = text.rstrip('\0')
    completion.refuse_if(not text.isprintable(),
                         constants.Completion.INVALID_FIELD)
    return text


class Writer:
    """A text that a session writes in parts, from its beginning."""

    def __init__(self) -> None:
        self._session: weakref.ref[channel.Session] | None = None
        self._text = b''

    def add(self, session: channel.Session, offset: int, part: bytes,
            most: int) -> bytes:
        """Add a part to what its session has written.

        :param offset: position of the part in bytes; 0 begins a new text
        :param most: largest number of bytes of the whole text
        :returns: the text so far
        :raises: `completion.RequestError` if the session has not written what
            precedes the part, or the text is too long
        """
        completion.refuse_if(offset + len(part) > most,
                             constants.Completion.OUT_OF_RANGE)
        before = b''
        if offset:
            if self._session is None or self._session() is not session:
                raise completion.RequestError(
                    constants.Completion.WRONG_STATE)
            before = self._text
        completion.refuse_if(offset > len(before),
                             constants.Completion.OUT_OF_RANGE)
        self._session = weakref.ref(session)
        self._text = before[:offset] + part
        return self._text
