# SPDX-License-Identifier: Apache-2.0
"""Waits for Metal3's kinds, which a cluster may get later than the operator.
"""

from __future__ import annotations

from collections import abc
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import api

#: Seconds between attempts to list them.
SECONDS = 10


async def check(client: api.Api,
                kinds: abc.Iterable[api_resources.AnyResource],
                namespaces: abc.Collection[str | None]) -> bool:
    """Check whether all objects of some kinds can be listed.

    :param namespaces: names; (None,) for all
    :returns: whether the API server has them
    :raises: `errors.AccessDenied`, and other `errors.MachineError` if the
        server does not answer
    """
    for kind in kinds:
        if not await client.serves(kind):
            return False
        for namespace in namespaces:
            await client.check_readable(kind, namespace)
    return True
