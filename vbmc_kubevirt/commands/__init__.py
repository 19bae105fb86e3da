# SPDX-License-Identifier: Apache-2.0
"""IPMI commands, one module for each group of the specification.

Each has a subclass of `group.Group`; `command_table` lists them. Section and
table numbers refer to the IPMI specification, second generation v2.0,
revision 1.1.
"""
