# SPDX-License-Identifier: Apache-2.0
"""JSON patches as an API server applies them, for unit tests.

They differ from those of the package ``jsonpatch``: a test of null succeeds
for an absent member, for example.
"""

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import json_patch


class Refused(Exception):
    """The patch does not apply, or one of its tests fails."""


def apply(obj: dict, operations: list) -> dict:
    """Apply a JSON patch to a copy of an object.

    :returns: the patched object.
    :raises Refused: it cannot be applied.
    """
    try:
        return json_patch.apply(obj, json_copy.copy(operations))
    except errors.ApiError as exc:
        raise Refused(str(exc)) from None
