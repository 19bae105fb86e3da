# SPDX-License-Identifier: Apache-2.0
"""The commands, a module each.

A module has ``configure``, which declares arguments, and ``run``, whose result
is the exit status. Modules import what costs time when they run: completion
and ``--help`` load all of them.
"""
