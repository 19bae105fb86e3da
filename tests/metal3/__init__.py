# SPDX-License-Identifier: Apache-2.0
"""Tests with baremetal-operator and Ironic."""
