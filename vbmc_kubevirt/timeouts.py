# SPDX-License-Identifier: Apache-2.0
"""How long IPMI may wait for a cluster: its clients wait less than Redfish's.

Apart, as both the daemon, which is to stay small, and who serves want it.
"""

#: ``ipmitool`` asks four times, in ten seconds, and calls a BMC dead that
#: has not answered then. Better it hears that the node is busy.
#: Of `options.Options`.
PATIENCE = {'write_deadline': 8.0, 'read_deadline': 4.0}
