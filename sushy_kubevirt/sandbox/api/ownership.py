# SPDX-License-Identifier: Apache-2.0
"""Who owns which field (metadata.managedFields), and server-side apply."""


def track(kind, old, new, manager, subresource):
    """Write down in ``new`` who changed what (an Update)."""


def same(new_meta, old_meta):
    """Whether managedFields say the same, apart from times."""
    return True
