# SPDX-License-Identifier: Apache-2.0
"""The BMC's side of IPMI v2.0 over LAN (RMCP+): packets, sessions, server.

Knows nothing of KubeVirt or of virtualbmc. Section and table numbers are
those of the IPMI specification, second generation v2.0, revision 1.1.

`codes` has the numbers, `packet` the bytes on the wire, `session` the keys
and the state of one client, `channel` the commands about these, `server` the
port and all its sessions.
"""
