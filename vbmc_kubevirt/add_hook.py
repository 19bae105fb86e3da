# SPDX-License-Identifier: Apache-2.0
"""Options of ``vbmc add``: ``--driver`` and the options of each driver.

cliff loads this hook into the installed ``vbmc``. The values are sent to the
daemon with upstream's own options; a ``vbmcd`` without drivers ignores them.
"""

from __future__ import annotations

import argparse

from cliff import hooks

from vbmc_kubevirt import drivers


class AddHook(hooks.CommandHook):
    """Hook of ``vbmc add`` in cliff's namespace ``virtualbmc.add``."""

    def get_parser(self, parser: argparse.ArgumentParser
                   ) -> argparse.ArgumentParser:
        classes = drivers.load()
        parser.add_argument(
            '--driver', choices=sorted(classes), default=None,
            help='Driver of the BMC\'s machine; defaults to [drivers] '
                 'default in the daemon\'s config file')
        for name in sorted(classes):
            classes[name].add_arguments(parser)
        return parser

    def get_epilog(self) -> str:
        return ''

    def before(self, parsed_args: argparse.Namespace) -> argparse.Namespace:
        return parsed_args

    def after(self, parsed_args: argparse.Namespace, return_code: int) -> int:
        return return_code
