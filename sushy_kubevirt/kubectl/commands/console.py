# SPDX-License-Identifier: Apache-2.0
"""Open the serial console of a VM, through its BMC.

"~." at the beginning of a line ends it, "~?" lists more. It waits for a VM
that is off, and connects again after each interruption. Without a terminal,
stdin is sent, and output goes to stdout until SIGINT or SIGTERM.
"""

from __future__ import annotations

import typing

from sushy_kubevirt.kubectl import session as sessions

if typing.TYPE_CHECKING:
    import argparse


EXAMPLES = """\
kubectl bmc console node-0
kubectl bmc console node-0 < /dev/null >> node-0.log
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Serve the terminal until the user ends the console."""
    from sushy_kubevirt.remote import console
    return console.run(lambda: session.redfish(options.name))
