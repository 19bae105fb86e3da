# SPDX-License-Identifier: Apache-2.0
"""The command ``sushy-kubevirt-operator``."""

import asyncio
import logging
import os
import sys

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import process

LOG = logging.getLogger(__name__)


def main(arguments=None):
    """Run the operator until a signal ends it.

    :param arguments: list of words; None for those of the process
    :returns: exit status: 0 after SIGTERM or SIGINT, else 1
    """
    options = command_line.parse(arguments)
    logs.configure(options.log_format, options.log_level)
    # Nobody else may read what is ever written to /tmp.
    os.umask(0o077)
    try:
        way = connection.Connection.from_options(
            options.kubeconfig, options.context)
        asyncio.run(process.run(options, way))
    except (errors.MachineError, OSError) as e:
        LOG.error('%s', e)
        return 1
    except KeyboardInterrupt:
        # Ctrl-C before there was a handler for it.
        pass
    except Exception:
        LOG.exception('Unexpected error, which is a bug of the operator')
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
