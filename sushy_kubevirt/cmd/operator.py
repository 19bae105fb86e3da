# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-operator``: from a command line to a process."""

import asyncio
import logging
import os
import sys

from sushy_kubevirt.kube import connection as connection_
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import logs
from sushy_kubevirt.operator import options as options_

LOG = logging.getLogger(__name__)


def main(arguments=None):
    """Run the operator until it is told to end.

    :param arguments: list of words; None for those of the process
    :returns: exit status: 0 when it was told to end, else 1
    """
    options = options_.parse(arguments)
    logs.configure(options.log_format, options.log_level)
    # What it may ever write to /tmp is nobody else's.
    os.umask(0o077)
    try:
        connection = connection_.Connection.from_options(
            options.kubeconfig, options.context)
        running = _running()
        asyncio.run(running.run(options, connection))
    except ModuleNotFoundError as e:
        LOG.error("There is no Python module %s; the operator is an extra of "
                  "its package: pip install '/path/to/clone[operator]'",
                  e.name)
        return 1
    except (errors.MachineError, OSError) as e:
        LOG.error('%s', e)
        return 1
    except KeyboardInterrupt:
        # A Ctrl-C before its handler was there.
        pass
    except Exception:
        LOG.exception('This should not happen')
        return 1
    return 0


def _running():
    """Load what works, which is not needed to say how it is used.

    kopf would load the Kubernetes client wherever that is installed, only to
    know its classes if it sees them: 18 MiB.
    """
    hidden = 'kubernetes' not in sys.modules
    if hidden:
        sys.modules['kubernetes'] = None
    try:
        from sushy_kubevirt.operator import running
    finally:
        if hidden:
            del sys.modules['kubernetes']
    return running


if __name__ == '__main__':
    sys.exit(main())
