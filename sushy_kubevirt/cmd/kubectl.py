# SPDX-License-Identifier: Apache-2.0
"""``kubectl-bmc``, which kubectl runs as ``kubectl bmc``."""

from __future__ import annotations

import argparse
from collections import abc
import sys
import types

from sushy_kubevirt.kubectl.commands import power
from sushy_kubevirt.kubectl import session as sessions

NAME = 'kubectl bmc'

#: Commands: what they do, and their modules.
COMMANDS: dict[str, tuple[str, types.ModuleType]] = {
    'power': ('show or change the power state', power)}


def parser() -> argparse.ArgumentParser:
    """Make the parser of the command line."""
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group('kubectl options')
    for words, metavar, text in (
            (('-n', '--namespace'), 'NAMESPACE', 'namespace of the BMC; '
             'without it, that of the context'),
            (('--context',), 'NAME', 'context of the kubeconfig'),
            (('--kubeconfig',), 'PATH', 'kubeconfig; without it, $KUBECONFIG '
             'or ~/.kube/config')):
        # Both before and after the command.
        group.add_argument(*words, metavar=metavar, help=text,
                           default=argparse.SUPPRESS)
    top = argparse.ArgumentParser(
        prog=NAME, parents=[common], allow_abbrev=False,
        description='Use the BMCs of virtual machines, through the API '
                    'server.')
    top.set_defaults(namespace=None, context=None, kubeconfig=None)
    commands = top.add_subparsers(
        title='commands', metavar='COMMAND', dest='command', required=True)
    for name, (text, module) in COMMANDS.items():
        command = commands.add_parser(
            name, help=text, description=module.__doc__, parents=[common],
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter)
        module.configure(command)
    return top


def main(arguments: abc.Sequence[str] | None = None) -> int:
    """Run a command.

    :param arguments: without the program's name; None for
        those of the process
    :returns: exit status: 1 after an error, 2 for a wrong command line, 130
        after SIGINT
    """
    options = parser().parse_args(arguments)
    from sushy_kubevirt.kube import errors
    try:
        status: int = COMMANDS[options.command][1].run(
            sessions.Session(options), options)
        return status
    except (errors.MachineError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        sessions.show(f'{NAME}: {error}', sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == '__main__':
    sys.exit(main())
