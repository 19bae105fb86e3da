# SPDX-License-Identifier: Apache-2.0
"""The web page of a BMC, in Debian's Chromium.

It is a suite of its own, ``tools/test web``, because it needs packages that
nothing else in this project needs.
"""
