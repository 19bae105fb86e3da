# SPDX-License-Identifier: Apache-2.0
"""Clients that other projects maintain, run against a BMC of the operator.

They are a separate suite, ``tools/test clients``, because they need packages
that nothing else in this project needs; `environment` installs those.
"""
