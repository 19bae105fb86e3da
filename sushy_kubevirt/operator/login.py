# SPDX-License-Identifier: Apache-2.0
"""How kopf gets to the API server: the way the rest of the operator does.

kopf's own ways would load the whole Kubernetes client, or know neither
programs that log in nor tokens that rotate.
"""

import kopf


def register(registry, transport):
    """Have kopf log in by a session of ours.

    :param registry: a `kopf.OperatorRegistry`
    :param transport: a `transport.Transport`
    """

    @kopf.on.login(registry=registry, id='login')
    async def login(**_):
        # A session each time: kopf closes one that the server refused. It has
        # a watch for each namespace.
        return kopf.AiohttpSession(
            server=transport.server,
            aiohttp_session=transport.session(limited=False))
