# SPDX-License-Identifier: Apache-2.0
"""A Secret that was read from the API, for pods that mount none."""

from __future__ import annotations

import base64

from sushy_kubevirt.kube import api_resources


class SecretValues:
    """The values of one Secret, kept in memory.

    :param client: a `client.Client`
    :param namespace: of the Secret
    :param name: its name
    :ivar values: dict of keys to bytes; another object after a change
    :ivar version: number that grows with each change
    """

    def __init__(self, client, namespace, name) -> None:
        self._client = client
        self._where = namespace, name
        self.values = {}
        self.version = 0

    def __str__(self) -> str:
        return '/'.join(self._where)

    def read(self) -> None:
        """Read the Secret; may block.

        :raises: `errors.MachineError`, which contains no value
        """
        found = self._client.get(api_resources.SECRET, *self._where)
        values = {name: base64.b64decode(text) for name, text in (
            found.get('data') or {}).items()}
        if values != self.values:
            self.values = values
            self.version += 1
