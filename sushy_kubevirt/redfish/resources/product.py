# SPDX-License-Identifier: Apache-2.0
"""Name and version of this project, as the BMC's manufacturer and firmware."""

from __future__ import annotations

import functools
from importlib import metadata

NAME = 'sushy-kubevirt'


@functools.cache
def version() -> str:
    """Return the version of the installed package."""
    return metadata.version(NAME)
