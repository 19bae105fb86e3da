# SPDX-License-Identifier: Apache-2.0
"""Files that commands write."""

import os

#: Modes of new files: for their owner alone, and for all.
PRIVATE, PUBLIC = 0o600, 0o644


def write(path, text, mode):
    """Replace a file atomically: readers see the old or the new content.

    :param path: of the file
    :param text: its content
    :param mode: permissions
    :raises: `OSError`
    """
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
