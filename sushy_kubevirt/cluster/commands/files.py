# SPDX-License-Identifier: Apache-2.0
"""Files that commands write."""

from __future__ import annotations

import os

#: Modes of new files: for their owner alone, and for all.
PRIVATE, PUBLIC = 0o600, 0o644


def write(path: str, text: str, mode: int) -> None:
    """Replace a file atomically: readers see the old or the new content.

    What is no file, such as /dev/stdout or a pipe, is written to.

    :param path: of the file, or of a symbolic link to it
    :raises: `OSError`
    """
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, 'w') as file:
            file.write(text)
        return
    path = os.path.realpath(path)
    temporary = f'{path}.{os.getpid()}'
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL,
                          mode), 'w') as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
