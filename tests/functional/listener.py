# SPDX-License-Identifier: Apache-2.0
"""Somebody who is sent events: a real HTTP server, as a fixture."""

import json
import threading
import time

import fixtures

from kubevirt_sandbox.testing import webserver


class Listener(fixtures.Fixture):
    """Takes what is sent to it.

    :param codes: what to answer, one after the other; the last for ever.
    :param delay: seconds before each answer.
    :param context: an ``ssl.SSLContext``, for HTTPS.

    ``url`` is where to send; ``posts`` lists (headers, body) of what came,
    taken or not.
    """

    def __init__(self, codes=(204,), delay=0, context=None):
        super().__init__()
        self._codes = list(codes)
        self._delay = delay
        self._context = context

    def _setUp(self):
        listener = self
        self.posts = []
        self.taken = []
        self._news = threading.Condition()
        self._stop = threading.Event()

        class Handler(webserver.Handler):

            def do_POST(self):
                body = self.rfile.read(int(self.headers['Content-Length']))
                listener._stop.wait(listener._delay)
                code = listener._take(dict(self.headers), json.loads(body))
                self.send_response(code)
                self.send_header('Content-Length', '0')
                self.end_headers()

        server = self.useFixture(webserver.WebServer(Handler, self._context))
        self.port = server.port
        self.url = server.url + '/events'
        self.addCleanup(self._stop.set)

    def _take(self, headers, body):
        with self._news:
            code = (self._codes.pop(0) if len(self._codes) > 1
                    else self._codes[0])
            self.posts.append((headers, body))
            if code < 300:
                self.taken.extend(body['Events'])
            self._news.notify_all()
        return code

    def answer(self, *codes):
        """Answer otherwise from now on."""
        with self._news:
            self._codes = list(codes)

    def keys(self, origin=None):
        """List the messages taken so far, without their registries.

        :param origin: only those about this resource.
        """
        with self._news:
            return [event['MessageId'].rpartition('.')[2]
                    for event in self.taken if origin is None
                    or event.get('OriginOfCondition') == {'@odata.id': origin}]

    def wait(self, key, count=1, origin=None, timeout=30):
        """Wait for an event.

        :param key: its message, without the registry.
        :param count: the how-manieth of them.
        :param origin: the resource it is about.
        :returns: the event.
        """
        def found():
            # One that came twice is one.
            return list({
                event['EventId']: event for event in self.taken
                if event['MessageId'].rpartition('.')[2] == key
                and (origin is None or event.get('OriginOfCondition')
                     == {'@odata.id': origin})}.values())

        deadline = time.monotonic() + timeout
        with self._news:
            while len(found()) < count:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(
                        'no %s within %g s, but %s' % (key, timeout, [
                            event['MessageId'] for event in self.taken]))
                self._news.wait(left)
            return found()[count - 1]
