# SPDX-License-Identifier: Apache-2.0
"""The DevStack plugin: its phases, and Ironic's own functions on its result.

It is a suite of its own, ``tools/test devstack``, because it needs packages
that nothing else in this project needs.
"""
