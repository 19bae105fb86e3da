# SPDX-License-Identifier: Apache-2.0
"""Who is asking: bearer tokens.

What a user may do is not decided here: everybody with a token is an
administrator until access rights are enforced.
"""
import dataclasses
import hmac


@dataclasses.dataclass(frozen=True)
class User:
    """A user as the API knows one (``authentication.k8s.io`` UserInfo)."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ''


class Tokens:
    """The tokens that are accepted, with whom they belong to."""

    def __init__(self):
        self._users = []

    def add(self, token, user):
        """Accept a token as one of a :class:`User`."""
        self._users.append((token.encode(), user))

    def user(self, authorization):
        """The :class:`User` of an ``Authorization`` header, or None.

        Every token is compared, each in constant time.
        """
        scheme, _, token = (authorization or '').partition(' ')
        if scheme.lower() != 'bearer' or not token:
            return None
        sent, found = token.strip().encode(errors='replace'), None
        for known, user in self._users:
            if hmac.compare_digest(sent, known):
                found = user
        return found
