# SPDX-License-Identifier: Apache-2.0
"""IPMI commands, one module for each group of the specification.

Each module has a function ``commands(bmc)`` that returns a dict of (network
function, command) to `server.Command`. `bmc` lists the modules. Section and
table numbers refer to the IPMI specification, second generation v2.0,
revision 1.1.
"""
