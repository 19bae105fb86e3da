# SPDX-License-Identifier: Apache-2.0
"""``kubectl-bmc`` and ``kubectl_complete-bmc``, which kubectl runs.

kubectl finds both by PATH: https://kubernetes.io/docs/tasks/extend-kubectl/
"""

from __future__ import annotations

import argparse
from collections import abc
import importlib
import sys
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


def command(name: str) -> types.ModuleType:
    """Import the module of a command."""
    return importlib.import_module(f'sushy_kubevirt.kubectl.commands.{name}')


def common() -> argparse.ArgumentParser:
    """Make the parser of the options of all commands."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    group = parser.add_argument_group('kubectl options')
    for words, metavar, text in (
            (('-n', '--namespace'), 'NAMESPACE', 'namespace of the BMC; '
             'without it, that of the context'),
            (('--context',), 'NAME', 'context of the kubeconfig'),
            (('--kubeconfig',), 'PATH', 'kubeconfig; without it, $KUBECONFIG '
             'or ~/.kube/config')):
        # Both before and after the command.
        group.add_argument(*words, metavar=metavar, help=text,
                           default=argparse.SUPPRESS)
    return parser


def parser(names: abc.Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """Make the parser of the command line.

    :param names: commands whose arguments are declared
    """
    shared = common()
    top = argparse.ArgumentParser(
        # Not `shared`: set_defaults changes the actions of parents.
        prog=NAME, parents=[common()], allow_abbrev=False,
        description='Use the BMCs of virtual machines, through the API '
                    'server.',
        epilog=f'"{NAME} COMMAND --help" has arguments and examples.')
    top.set_defaults(namespace=None, context=None, kubeconfig=None)
    commands = top.add_subparsers(
        title='commands', metavar='COMMAND', dest='command', required=True)
    for name, text in COMMANDS.items():
        if name not in names:
            commands.add_parser(name, help=text)
            continue
        module = command(name)
        declared = commands.add_parser(
            name, help=text, description=module.__doc__,
            epilog='examples:\n' + ''.join(
                f'  {line}\n' for line in module.EXAMPLES.splitlines()),
            parents=[shared], allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter)
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
    # Importing what other commands need would take longer than most requests.
    top = parser(set(words))
    options = top.parse_args(words)
    from sushy_kubevirt.kube import errors
    try:
        status: int = command(options.command).run(
            sessions.Session(options), options)
        return status
    except sessions.UsageError as error:
        top.error(str(error))
    except (errors.MachineError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        sessions.show(f'{NAME}: {error}', sys.stderr)
        if isinstance(error, errors.AccessDenied):
            sessions.show(
                f'"kubectl auth can-i {error.verb} {error.resource}'
                + (f' --namespace {error.namespace}' if error.namespace
                   else ' --all-namespaces')
                + '" tests this right. The ClusterRole bmc-user has those of '
                'a user: bind it in the namespace', sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def complete() -> int:
    """Print completions of the command line, by kubectl's protocol.

    :returns: exit status 0
    """
    from sushy_kubevirt.kubectl import completion
    words = sys.argv[1:]
    print('\n'.join(completion.lines(
        parser(set(words)), common(), words or [''])))
    return 0


if __name__ == '__main__':
    sys.exit(main())
