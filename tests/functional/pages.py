# SPDX-License-Identifier: Apache-2.0
"""The documents, as far as what stands in them is run."""

import re
import textwrap

from tests.functional import checkout

RECIPES = checkout.ROOT / 'doc/source/operator/recipes.rst'
NOT_READY = checkout.ROOT / 'doc/source/operator/not-ready.rst'
README = checkout.ROOT / 'README.rst'

#: What stands after a block that nobody can run here, with the reason.
NOT_RUN = '.. not run: '


def blocks(text):
    """Literal blocks of a page.

    :returns: list of (title of the section, text of the block, whether it is
        to be run)
    """
    found, title, lines = [], '', text.splitlines()
    for number, line in enumerate(lines):
        if re.fullmatch('=+', line) and lines[number - 1]:
            title = lines[number - 1]
        if not line.endswith('::') or line.startswith('..'):
            continue
        rest = lines[number + 1:]
        length = next((i for i, one in enumerate(rest)
                       if one and not one.startswith('    ')), len(rest))
        after = rest[length] if length < len(rest) else ''
        found.append((title, textwrap.dedent(
            '\n'.join(rest[:length])).strip('\n'),
            not after.startswith(NOT_RUN)))
    return found
