# SPDX-License-Identifier: Apache-2.0
"""The requests that the first frame of the overview waits for."""

import re

from tests.web import case

SESSIONS = '/redfish/v1/SessionService/Sessions'

# When the power state is shown: what the document names, and what else has
# arrived. The page has received nothing in between that it did not wait for.
_WATCH = """
window.seen = new Promise((resolve) => {
  new MutationObserver((_records, observer) => {
    if (document.querySelector('#power')?.textContent) {
      observer.disconnect();
      const named = [...document.querySelectorAll('link, script')].map(
        (element) => element.href || element.src);
      resolve([named, performance.getEntriesByType('resource').map(
        (entry) => entry.name).filter((url) => !named.includes(url))]);
    }
  }).observe(document, {subtree: true, childList: true});
});
"""


class FirstViewTestCase(case.WebPodTestCase):

    def test_requests_one_after_the_other(self):
        self.log_in()
        self.page.add_init_script(_WATCH)
        for place in '', '#/systems/1/overview':
            with self.subTest(place):
                self.page.goto('/' + place)
                self.page.reload()
                named, others = self.page.evaluate('window.seen')
                # The document, what it names, and then one resource.
                self.assertEqual(
                    [f'{self.pod.url}/redfish/v1/Systems?$top=2&$expand=.'],
                    others)
                # Of which one is the icon.
                self.assertLessEqual(len(named), 9)

    def test_session_that_has_ended(self):
        self.log_in()
        self.expect(self.page.locator('#power')).to_be_visible()
        session = self.page.evaluate('JSON.stringify(sessionStorage)')
        self.tab.allow_error('status of 40[14]')
        # An open page would notice the end, and forget its session.
        self.page.goto('data:text/html,')
        for one in self.pod.request('GET', SESSIONS).json()['Members']:
            self.pod.request('DELETE', one['@odata.id'], expect=204)
        self.page.goto('/')
        self.expect(self.page.get_by_text(
            'Your session has ended.')).to_be_visible()
        # No view is behind the login.
        self.expect(self.page.locator('#power')).to_have_count(0)
        self.assertNotEqual(session, self.page.evaluate(
            'JSON.stringify(sessionStorage)'))

    def test_machine_that_the_collection_only_names(self):
        # It could not be read then.
        systems = self.pod.request('GET', '/redfish/v1/Systems').json()
        self.log_in()
        self.page.route('**/Systems?*',
                        lambda route: route.fulfill(json=systems))
        self.page.add_init_script(_WATCH)
        self.page.reload()
        self.assertIn(self.pod.url + '/redfish/v1/Systems/1',
                      self.page.evaluate('window.seen')[1])
        self.expect(self.page).to_have_title(re.compile('^vm-0'))
