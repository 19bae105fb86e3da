# SPDX-License-Identifier: Apache-2.0
"""The options ``vbmc add`` gets by a hook: ``--driver`` and the drivers' own.

Loaded by cliff into the installed ``vbmc``. What is chosen travels to the
daemon with upstream's own options; a ``vbmcd`` without drivers takes no
notice of it.
"""

from cliff import hooks

from vbmc_kubevirt import drivers


class AddHook(hooks.CommandHook):
    """Hook of ``vbmc add``, under cliff's namespace ``virtualbmc.add``."""

    def get_parser(self, parser):
        found = drivers.load()
        parser.add_argument(
            '--driver', choices=sorted(found), default=None,
            help='What the BMC is a BMC of; defaults to what the daemon\'s '
                 'config file has as [drivers] default')
        for name in sorted(found):
            found[name].add_arguments(parser)
        return parser

    def get_epilog(self):
        return ''

    def before(self, parsed_args):
        return parsed_args

    def after(self, parsed_args, return_code):
        return return_code
