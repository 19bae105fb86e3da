# SPDX-License-Identifier: Apache-2.0
"""Event streams, of which the service has few: the page holds none in vain."""

import contextlib

import requests

from tests.fixtures import redfish_pod
from tests.web import case


class StreamTestCase(case.WebPodTestCase):

    SETTINGS = 'SUSHY_EMULATOR_KUBEVIRT_EVENT_STREAMS = 1\n'
    PATH = '/redfish/v1/EventService/SSE'

    def stream(self):
        """Return the status of another client's attempt to get the stream."""
        with contextlib.closing(requests.get(
                self.pod.url + self.PATH, stream=True,
                auth=(redfish_pod.USER, self.pod.password), timeout=30,
                verify=str(self.pod.ca))) as answer:
            return answer.status_code

    def opened(self):
        """Return a context that ends when the page has got the stream.

        The service may hold that of a client that has just gone: the page is
        refused, and tries again.
        """
        self.tab.allow_error('status of 503 .*/SSE')
        return self.page.expect_response(
            lambda one: one.url.endswith(self.PATH) and one.status == 200)

    def test_hidden_page_has_no_stream(self):
        with self.opened():
            self.log_in()
        self.assertEqual(503, self.stream())
        self.hide(True)
        self.until(lambda: self.stream() == 200)
        with self.opened():
            self.hide(False)
        self.assertEqual(503, self.stream())

    def test_second_page_is_live_without_a_stream(self):
        with self.opened():
            self.log_in()
        other = self.open_tab()
        other.allow_error('status of 503 .*/SSE')
        self.log_in(other)
        self.sandbox.do('vm-0', 'start')
        for tab in self.tab, other:
            self.expect(tab.page.locator('#power')).to_have_text('On')
