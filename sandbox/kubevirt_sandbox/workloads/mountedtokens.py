# SPDX-License-Identifier: Apache-2.0
"""Tokens mounted into a pod, renewed before they expire.

A node renews a token after four fifths of its lifetime, or of a day. A token
with the default lifetime of 3607 seconds is renewed accordingly, but is valid
for a year, so that programs that read it only once keep working.

Source: kubernetes/pkg/kubelet/token/token_manager.go and
pkg/registry/core/serviceaccount/storage/token.go (1.36).
"""

import asyncio

#: Default lifetime in seconds, and the real lifetime of such tokens.
USUAL, YEAR = 3607, 365 * 24 * 3600

_OLDEST = 24 * 3600
_SHARE = 0.8


class Tokens:
    """The mounted tokens of one pod.

    :param issue: function (audiences, seconds) that returns a token.
    :param seconds: lifetime of each token, overrides the volume's
        ``expirationSeconds``; None: no override.
    """

    def __init__(self, issue, seconds=None):
        self._issue = issue
        self._seconds = seconds
        self._made = {}

    def get(self, source):
        """Return the token of a projected volume, renewed when due.

        :param source: its ``serviceAccountToken``.
        """
        now = asyncio.get_running_loop().time()
        key = (source.get('audience'), source.get('expirationSeconds'))
        text, due = self._made.get(key, (None, 0))
        if due <= now:
            audience, asked = key
            asked = self._seconds or asked or USUAL
            text = self._issue((audience,) if audience else (),
                               YEAR if asked == USUAL else asked)
            self._made[key] = text, now + min(asked, _OLDEST) * _SHARE
        return text

    def due(self):
        """Return when the next token is due, loop time; None: never."""
        return min((due for _, due in self._made.values()), default=None)
