# SPDX-License-Identifier: Apache-2.0
"""The BMC's side of IPMI over LAN, v2.0 (RMCP+) and v1.5.

Knows nothing of KubeVirt or of virtualbmc. Section and table numbers are
those of the IPMI specification, second generation v2.0, revision 1.1.

`codes` has the numbers, `packet` the bytes on the wire, `session` the keys
and the state of one client, `session15` the same for v1.5, `window` what of
it came before, `channel` the commands about these, `server` the port and all
its sessions.
"""
