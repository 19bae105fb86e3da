# SPDX-License-Identifier: Apache-2.0
"""Lines about what happens, for users who wait."""

from __future__ import annotations

import threading
import time
import typing

from sushy_kubevirt.remote import wording


class Lines:
    """Writes a line for each step of a node. Thread-safe.

    :param stream: file to write to; None for none
    """

    def __init__(self, stream: typing.TextIO | None) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def step(self, name: str, step: str, text: str = '') -> None:
        """Write a step of a node.

        :param step: such as ``manage``
        :param text: what happens in it
        """
        self.line(f'{name}  {step}' + (f'  {text}' if text else ''))

    def line(self, text: str) -> None:
        """Write text with the seconds since the beginning."""
        if self._stream is None:
            return
        # Reasons may have several lines; one step is one line.
        text = wording.printable(' '.join(text.split('\n')))
        with self._lock:
            print(f'{time.monotonic() - self._began:7.1f} s  {text}',
                  file=self._stream, flush=True)


#: Writes nothing.
SILENT = Lines(None)
