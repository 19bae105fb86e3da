# SPDX-License-Identifier: Apache-2.0
"""Parts of messages about a cluster file."""

from __future__ import annotations

from collections import abc
import difflib

from sushy_kubevirt.remote import wording

#: Longest text of a value that a message repeats.
_LONGEST = 60


def closest(word: str, words: abc.Iterable[str]) -> str | None:
    """Find which of the words a misspelt word probably was to be."""
    matches = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return matches[0] if matches else None


def unknown(what: str, word: str, words: abc.Iterable[str], where: str) -> str:
    """Make the sentence about a name that does not exist.

    :param where: keys below which they are declared
    """
    words = list(words)
    text = f'there is no {what} "{short(word)}" in {where}'
    near = closest(word, words)
    if near:
        return f'{text}; did you mean "{near}"?'
    if words:
        listed = ', '.join(f'"{known}"' for known in sorted(words)[:10])
        return f'{text}; there is {listed}'
    return text


def choice(name: str, value: str, choices: abc.Iterable[str]) -> str:
    """Make the sentence about a value that is not among the permitted ones."""
    near = closest(value, choices)
    if near:
        return (f'"{name}" cannot be "{short(value)}"; did you mean '
                f'"{near}"?')
    listed = ', '.join(f'"{permitted}"' for permitted in choices)
    return f'"{name}" has to be one of {listed}, not "{short(value)}"'


def path(keys: abc.Sequence[str | int]) -> str:
    """Return keys and indices as text, such as ``specs[0].type``."""
    if not keys:
        return 'the file'
    text = ''
    for key in keys:
        text += f'[{key}]' if isinstance(key, int) else f'.{short(key)}'
    return text.lstrip('.')


def shown(value: object) -> str:
    """Return a value as a message shows it."""
    if value is None:
        return 'null'
    if isinstance(value, dict):
        return 'a mapping'
    if isinstance(value, list):
        return 'a list'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{short(value)}"'
    return str(value)


def short(text: str) -> str:
    """Return the beginning of a long text, fit to be printed."""
    text = wording.printable(text)
    return text if len(text) <= _LONGEST else text[:_LONGEST - 1] + '…'
