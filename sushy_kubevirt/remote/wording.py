# SPDX-License-Identifier: Apache-2.0
"""Text of others, fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return text without characters that would control a terminal."""
    return ''.join(character if character.isprintable()
                   else ascii(character)[1:-1] for character in text)


def printable_lines(text: str) -> str:
    """Return likewise, of text that may have several lines."""
    return '\n'.join(printable(line) for line in text.split('\n'))
