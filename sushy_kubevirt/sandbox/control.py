# SPDX-License-Identifier: Apache-2.0
"""The routes under ``/sandbox/`` that control the sandbox itself."""


def install(server):
    """Add the routes to a server."""
