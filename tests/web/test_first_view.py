# SPDX-License-Identifier: Apache-2.0
"""The requests that the first frame of the overview waits for."""

from tests.web import case

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
