# SPDX-License-Identifier: Apache-2.0
"""``vbmcd-kubevirt``: virtualbmc's daemon, with drivers."""

from __future__ import annotations

import sys

from vbmc_kubevirt import manager
from vbmc_kubevirt import upstream


def main(argv: list[str] | None = None) -> int:
    """Run the daemon. Options and configuration are ``vbmcd``'s.

    :param argv: words, without the program's name
    :returns: exit code
    """
    return upstream.run(manager.Manager, manager.COLUMNS,
                        sys.argv[1:] if argv is None else argv)


if __name__ == '__main__':
    sys.exit(main())
