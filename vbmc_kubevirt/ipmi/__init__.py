# SPDX-License-Identifier: Apache-2.0
"""BMC side of IPMI over LAN, v2.0 (RMCP+) and v1.5.

Independent of KubeVirt and virtualbmc. Section and table numbers refer to
the IPMI specification, second generation v2.0, revision 1.1.

`constants` has numbers of the specification, `packet` the wire format,
`session20` and `session15` the state of one client, `channel` the commands
about sessions, `udp` the sockets, `server` the port and its sessions.
"""
