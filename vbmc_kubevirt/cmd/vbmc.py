# SPDX-License-Identifier: Apache-2.0
"""``vbmc-kubevirt``: virtualbmc's ``vbmc``, which needs no libvirt module.

``vbmc`` itself imports libvirt's Python module for every command.
"""

from __future__ import annotations

import sys

from vbmc_kubevirt import upstream


def main(argv: list[str] | None = None) -> int:
    """Run ``vbmc``. Options and configuration are the same.

    :param argv: list of words, without the program's name
    :returns: exit code
    """
    return upstream.run_client(sys.argv[1:] if argv is None else argv)


if __name__ == '__main__':
    sys.exit(main())
