# SPDX-License-Identifier: Apache-2.0
"""``kubectl-bmc`` and ``kubectl_complete-bmc``, which kubectl runs.

kubectl finds both by PATH: https://kubernetes.io/docs/tasks/extend-kubectl/
"""

from __future__ import annotations

import argparse
from collections import abc
import importlib
import os
import sys
import textwrap
import typing

from sushy_kubevirt.kubectl import session as sessions

if typing.TYPE_CHECKING:
    import types

NAME = 'kubectl bmc'

#: Commands, whose modules have these names, and what they do.
COMMANDS = {
    'list': 'list BMCs with power, boot, medium, address and health',
    'power': 'show or change the power state',
    'boot': 'show or change what is booted',
    'credentials': 'print what a client needs',
    'create': 'create a BMC for a VM',
    'console': 'open the serial console',
    'web': 'open the web page',
    'media': 'insert an image into a virtual drive, or eject it',
    'log': 'show the event log',
    'sensors': 'show the state and the health of a VM and its parts',
}


def _command(name: str) -> types.ModuleType:
    return importlib.import_module(f'sushy_kubevirt.kubectl.commands.{name}')


def parser(words: abc.Collection[str]) -> argparse.ArgumentParser:
    """Make the parser of a command line.

    :param words: the command line; only commands in it get their arguments, as
        importing what the others need takes longer than most requests
    """
    shared = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    group = shared.add_argument_group('kubectl options')
    for names, text in (
            (('-n', '--namespace'),
             "namespace of the BMC (default: the context's)"),
            (('--context',), 'context of the kubeconfig'),
            (('--kubeconfig',),
             'path (default: $KUBECONFIG, ~/.kube/config)')):
        # Without a default, as they may stand before or after the command.
        group.add_argument(*names, help=text, default=argparse.SUPPRESS)
    top = argparse.ArgumentParser(
        prog=NAME, parents=[shared], allow_abbrev=False,
        description='Use the BMCs of virtual machines, through the API '
                    'server.',
        epilog=f'"{NAME} COMMAND --help" has arguments and examples.')
    commands = top.add_subparsers(
        title='commands', metavar='COMMAND', dest='command', required=True)
    for name, text in COMMANDS.items():
        declared = commands.add_parser(
            name, help=text, parents=[shared], allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter)
        if name in words:
            module = _command(name)
            declared.description = module.__doc__
            declared.epilog = 'examples:\n' + textwrap.indent(
                module.EXAMPLES, '  ')
            module.configure(declared)
    return top


def main(arguments: abc.Sequence[str] | None = None) -> int:
    """Run a command.

    :param arguments: without the program's name; None for
        those of the process
    :returns: exit status: 1 after an error, 2 for a wrong command line, 130
        after SIGINT
    """
    words = sys.argv[1:] if arguments is None else arguments
    top = parser(words)
    options = top.parse_args(words)
    from sushy_kubevirt.kube import errors
    try:
        status: int = _command(options.command).run(
            sessions.Session(options), options)
        sys.stdout.flush()
        return status
    except sessions.UsageError as error:
        top.error(str(error))
    except BrokenPipeError:
        # The reader, such as head, has ended; Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (errors.MachineError, OSError) as error:
        text = f'{NAME}: {error}'
        if isinstance(error, errors.AccessDenied):
            where = (f'--namespace {error.namespace}' if error.namespace
                     else '--all-namespaces')
            text += (
                f'\n"kubectl auth can-i {error.verb} {error.resource} {where}"'
                ' tests this right. The ClusterRole bmc-user has those of a '
                'user: bind it in the namespace')
        sessions.show(text, sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def complete() -> int:
    """Print completions of the command line, by kubectl's protocol.

    :returns: exit status 0
    """
    from sushy_kubevirt.kubectl import completion
    words = sys.argv[1:]
    print('\n'.join(completion.lines(parser(words), words or [''])))
    return 0


if __name__ == '__main__':
    sys.exit(main())
