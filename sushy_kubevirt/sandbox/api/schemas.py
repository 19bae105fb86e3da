# SPDX-License-Identifier: Apache-2.0
"""Structural schemas: pruning, defaults and validation."""


def prune(schema, obj, unknown=None):
    """Remove the fields that the schema does not know."""


def fill_defaults(schema, obj):
    """Fill in defaults."""


def causes(schema, obj):
    """What the schema refuses: a list of errors.Cause."""
    return []
