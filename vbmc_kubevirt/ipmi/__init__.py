# SPDX-License-Identifier: Apache-2.0
"""BMC side of IPMI over LAN, v2.0 (RMCP+) and v1.5.

Independent of KubeVirt and virtualbmc. Section and table numbers refer to
the IPMI specification, second generation v2.0, revision 1.1.

Not pyghmi's server (pyghmi.ipmi.bmc, release 1.6.19): its sessions never end,
a malformed packet ends its loop, and handlers block it;
doc/source/reference/ipmi.rst has the complete list. Its import adds 11.9 MiB
PSS and 60 ms to a process with the Kubernetes client, this package 7.6 MiB and
27 ms (CPython 3.11.7), in a container for each VM.

`constants` has numbers of the specification, `packet` the wire format,
`session20` and `session15` the state of one client, `channel` the commands
about sessions, `udp` the sockets, `server` the port and its sessions.
"""
