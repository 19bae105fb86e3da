# SPDX-License-Identifier: Apache-2.0
"""DMTF's validators, run against an emulator.

They are a separate suite, ``tools/test dmtf``, because they take long.
"""
