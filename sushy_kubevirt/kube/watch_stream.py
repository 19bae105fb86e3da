# SPDX-License-Identifier: Apache-2.0
"""An open watch: the events in the response of the API server."""

from __future__ import annotations

from collections import abc
import typing

import urllib3

from sushy_kubevirt.kube import api_responses
from sushy_kubevirt.kube import connection_errors
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources

#: Annotation of the bookmark that ends the objects of a streaming list
#: (KEP-3157).
INITIAL_EVENTS_END = 'k8s.io/initial-events-end'


class Collection(typing.NamedTuple):
    resource: api_resources.AnyResource
    namespace: str | None
    label_selector: str
    field_selector: str


class Watch(typing.Generic[objects.ObjectT]):
    """An open watch: iterable of (type, object).

    Ends when the server ends the watch.

    :param response: its body not read
    :param call: for messages
    :param bookmarked: collections whose watches have received bookmarks; is
        changed
    :param collection: what is watched
    :param resumes: True to end, and False to raise `errors.WatchExpired`,
        after the read timeout
    :raises: while iterating: `errors.WatchExpired`, `errors.Unavailable`, or
        the error that the server reports
    """

    def __init__(self, response: urllib3.BaseHTTPResponse,
                 call: api_responses.ApiCall, bookmarked: set[Collection],
                 collection: Collection, resumes: bool) -> None:
        self._response = response
        self._call = call
        self._bookmarked = bookmarked
        self._collection = collection
        self._resumes = resumes

    def __iter__(self) -> abc.Iterator[tuple[str, objects.ObjectT]]:
        try:
            for line in self._lines():
                event = api_responses.parse(line)
                if event['type'] == 'ERROR':
                    status = event.get('object') or {}
                    raise api_responses.error_from_status(
                        status.get('code') or 500,
                        status.get('message') or 'The watch failed',
                        None, self._call)
                if event['type'] == 'BOOKMARK':
                    self._bookmarked.add(self._collection)
                yield event['type'], event['object']
        except urllib3.exceptions.ReadTimeoutError:
            self._bookmarked.discard(self._collection)
            if self._resumes:
                return
            # The server should have ended the watch. Another one from the
            # same version may miss events as well, so list again.
            raise errors.WatchExpired(
                f'{self._call}: the API server sent nothing and did not end '
                'the watch in time') from None
        except (urllib3.exceptions.HTTPError, OSError, ValueError,
                KeyError, TypeError) as e:
            raise errors.Unavailable(
                f'{self._call}: connection lost: '
                f'{connection_errors.reason(e)}') from None
        finally:
            self._response.close()

    def _lines(self) -> abc.Iterator[bytes]:
        rest: list[bytes] = []
        while True:
            data = self._response.read1(65536)
            if not data:
                break
            first, *others = data.split(b'\n')
            rest.append(first)
            for following in others:
                line = b''.join(rest)
                rest = [following]
                if line.strip():
                    yield line
        if b''.join(rest).strip():
            yield b''.join(rest)

    def stop(self) -> None:
        """End the watch from another thread."""
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):
            pass    # the watch has ended already
