# SPDX-License-Identifier: Apache-2.0
"""Where this checkout is."""

import pathlib

#: The folder with ``setup.py``.
ROOT = pathlib.Path(__file__).resolve().parents[2]
