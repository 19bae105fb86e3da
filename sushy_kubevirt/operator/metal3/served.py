# SPDX-License-Identifier: Apache-2.0
"""Waits for Metal3's kinds, which a cluster may get later than the operator.
"""

#: Seconds between attempts to list them.
SECONDS = 10


async def check(api, kinds, namespaces) -> bool:
    """Check whether all objects of some kinds can be listed.

    :param api: an `api.Api`
    :param kinds: iterable of `api_resources.Resource`
    :param namespaces: iterable of names; (None,) for all
    :returns: whether the API server has them
    :raises: `errors.AccessDenied`, and other `errors.MachineError` if the
        server does not answer
    """
    for kind in kinds:
        if not await api.serves(kind):
            return False
        for namespace in namespaces:
            await api.check_readable(kind, namespace)
    return True
