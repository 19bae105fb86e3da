# SPDX-License-Identifier: Apache-2.0
"""A Secret that was read from the API, for pods that mount none."""

from __future__ import annotations

import base64
import typing

from sushy_kubevirt.kube import api_resources

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client


class SecretValues:
    """The values of one Secret, kept in memory.

    :param namespace: of the Secret
    :param name: its name
    :ivar values: by key; another object after a change
    :ivar version: number that grows with each change
    """

    def __init__(self, client: client.Client, namespace: str,
                 name: str) -> None:
        self._client = client
        self._where = namespace, name
        self.values: dict[str, bytes] = {}
        self.version = 0

    def __str__(self) -> str:
        return '/'.join(self._where)

    def read(self) -> None:
        """Read the Secret; may block.

        :raises: `errors.MachineError`, which contains no value
        """
        secret = self._client.get(api_resources.SECRET, *self._where)
        values = {name: base64.b64decode(text) for name, text in (
            secret.get('data') or {}).items()}
        if values != self.values:
            self.values = values
            self.version += 1
