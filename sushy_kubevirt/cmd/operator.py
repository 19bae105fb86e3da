# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-operator``: the operator for VirtualMachineBMCs."""

from __future__ import annotations

import asyncio
from collections import abc
import logging
import os
import sys

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import process

LOG = logging.getLogger(__name__)


def main(arguments: abc.Sequence[str] | None = None) -> int:
    """Run the operator until SIGTERM or SIGINT, or a subcommand.

    :param arguments: without the program's name; None for
        those of the process
    :returns: exit status: 0 after SIGTERM or SIGINT, else 1; see also
        `diagnose.command`
    """
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == [command_line.DIAGNOSE]:
        # Imported here because the operator does not need it.
        from sushy_kubevirt.operator.diagnose import command
        return _subcommand(command.main, words)
    if words[:1] == [command_line.CLAIM_KUBECONFIG]:
        from sushy_kubevirt.operator.metal3 import claim_kubeconfig
        return _subcommand(claim_kubeconfig.main, words)
    options = command_line.parse(arguments)
    logs.configure(options.log_format, options.log_level)
    # Files that libraries write to /tmp must not be readable by other users.
    os.umask(0o077)
    try:
        asyncio.run(process.Operator(
            options, connection.Connection.from_options(
                options.kubeconfig, options.context)).run())
    except (errors.MachineError, OSError) as e:
        LOG.error('%s', e)
        return 1
    except KeyboardInterrupt:
        # Ctrl-C before the signal handler was installed.
        pass
    except Exception:
        LOG.exception('Unexpected error, a bug in the operator')
        return 1
    return 0


def _subcommand(main: abc.Callable[[abc.Sequence[str]], int],
                words: abc.Sequence[str]) -> int:
    """Run a subcommand.

    :param main: its function, which returns the exit status
    :param words: its name and its arguments
    :returns: exit status: 130 after SIGINT, 1 after an error
    """
    try:
        return main(words[1:])
    except (errors.MachineError, OSError) as e:
        print(f'{command_line.PROGRAM} {words[0]}: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'{command_line.PROGRAM} {words[0]}: interrupted',
              file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
