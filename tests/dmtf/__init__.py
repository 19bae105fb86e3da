# SPDX-License-Identifier: Apache-2.0
"""DMTF's own validators against a running emulator.

A suite of its own, as each run takes a while: ``tools/test dmtf``.
"""
