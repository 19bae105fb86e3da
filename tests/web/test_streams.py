# SPDX-License-Identifier: Apache-2.0
"""Event streams, of which the service has few: the page holds none in vain."""

import contextlib

import requests

from tests.fixtures import redfish_pod
from tests.web import case


class StreamTestCase(case.WebPodTestCase):

    SETTINGS = 'SUSHY_EMULATOR_KUBEVIRT_EVENT_STREAMS = 1\n'

    def stream(self):
        """Return the status of another client's attempt to get the stream."""
        with contextlib.closing(requests.get(
                self.pod.url + '/redfish/v1/EventService/SSE', stream=True,
                auth=(redfish_pod.USER, self.pod.password), timeout=30,
                verify=str(self.pod.ca))) as answer:
            return answer.status_code

    def hide(self, hidden):
        self.page.evaluate("""(hidden) => {
            Object.defineProperty(
                document, 'hidden', {value: hidden, configurable: true});
            document.dispatchEvent(new Event('visibilitychange'));
        }""", hidden)

    def test_hidden_page_has_no_stream(self):
        self.log_in()
        self.until(lambda: self.stream() == 503)
        self.hide(True)
        self.until(lambda: self.stream() == 200)
        self.hide(False)
        self.until(lambda: self.stream() == 503)

    def test_second_page_is_live_without_a_stream(self):
        self.log_in()
        self.until(lambda: self.stream() == 503)
        other = self.open_tab()
        other.allow_error('status of 503')
        self.log_in(other)
        self.sandbox.do('vm-0', 'start')
        for tab in self.tab, other:
            self.expect(tab.page.locator('#power')).to_have_text('On')
