# SPDX-License-Identifier: Apache-2.0
"""``kubectl bmc web``: the page, Redfish and consoles through a local port."""

import pathlib
import re
import signal

import fixtures
import requests

from tests.fixtures import console_client
from tests.fixtures import kubectl_case
from tests.fixtures import operator

SESSIONS = '/redfish/v1/SessionService/Sessions'


class WebTestCase(kubectl_case.KubectlCase):

    def setUp(self):
        super().setUp()
        self.vm('box', 'Always')
        self.sandbox.wait_running('box', self.namespace)
        self.box = self.bmc().ready()

    def open(self, *words, **variables):
        """Start the command; return it and the address that it prints."""
        started = self.start('web', 'box', *words, **variables)
        url = started.stdout.readline().decode()
        self.assertRegex(url, r'^http://127\.0\.0\.1:\d+/$')
        self.session = requests.Session()
        self.session.trust_env = False
        self.addCleanup(self.session.close)
        return started, url.strip().rstrip('/')

    def login(self, url):
        """Log in as the page does; return the session's token."""
        answer = self.session.post(
            url + SESSIONS, headers={'Origin': url}, timeout=60,
            json={'UserName': 'admin', 'Password': self.box.password})
        self.assertEqual(201, answer.status_code, answer.text)
        return answer.headers['X-Auth-Token']

    def test_page_redfish_and_consoles(self):
        started, url = self.open('--no-browser')
        self.assertIn(b'kubectl bmc credentials box',
                      started.stderr.readline())
        page = self.session.get(url + '/', timeout=60)
        self.assertIn('<title>', page.text)
        for path in re.findall(r'(?:src|href)="(/?web/[^"]+)"', page.text):
            self.assertEqual(200, self.session.get(
                f"{url}/{path.lstrip('/')}", timeout=60).status_code, path)
        self.assertEqual(401, self.session.get(
            url + '/redfish/v1/Systems/1', timeout=60).status_code)
        token = self.login(url)
        headers = {'X-Auth-Token': token, 'Origin': url}
        system = self.session.get(url + '/redfish/v1/Systems/1', timeout=60,
                                  headers=headers).json()
        self.assertEqual('On', system['PowerState'])
        self.assertEqual(204, self.session.patch(
            url + '/redfish/v1/Systems/1', headers=headers, timeout=60,
            json={'AssetTag': 'changed'}).status_code)
        # As a browser sends it: of the page's origin, with the token.
        path = system['SerialConsole']['WebSocket']['ConsoleURI']
        console = console_client.Client(url + path, token, None,
                                        {'Origin': url})
        self.addCleanup(console.close)
        self.assertIn(b'hello', console.say(b'hello'))
        started.send_signal(signal.SIGINT)
        self.assertEqual(130, started.wait(60))

    def test_other_origin_opens_no_console(self):
        _, url = self.open('--no-browser')
        token = self.login(url)
        self.assertRaisesRegex(
            Exception, '403', console_client.Client,
            url + '/redfish/v1/Systems/1/SerialConsole', token, None,
            {'Origin': 'http://attacker.example'})

    def test_pod_that_is_replaced(self):
        _, url = self.open('--no-browser')
        self.assertEqual(200, self.session.get(url, timeout=60).status_code)

        def get():
            try:
                return self.session.get(url, timeout=60)
            except requests.ConnectionError as exc:
                # Its connection to the former pod.
                raise AssertionError(str(exc)) from None
        self.kubectl('delete', 'pods', '-l', operator.LABEL + 'box')
        self.until('page', lambda: get().status_code, 200)
        self.kubectl('delete', 'vmbmc', 'box')

        def answer():
            response = get()
            # It says that the pod is not ready until the Service is deleted.
            return response.status_code, 'has no Service' in response.text
        self.until('no page', answer, (502, True))

    def test_opens_a_browser(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        browser = folder / 'browser'
        browser.write_text(f'#!/bin/sh\necho "$1" > {folder}/made\n'
                           f'mv {folder}/made {folder}/url\n')
        browser.chmod(0o755)
        _, url = self.open(BROWSER=str(browser))
        opened = folder / 'url'
        self.until('browser', opened.exists)
        self.assertEqual(url + '/', opened.read_text().strip())

    def test_port_in_use_and_disabled_page(self):
        _, url = self.open('--no-browser')
        port = url.rpartition(':')[2]
        self.assertIn('address already in use', self.refusal(
            'web', 'box', '--no-browser', '--port', port))
        self.kubectl.patch('vmbmc', 'box', {'spec': {
            'redfish': {'webPage': False}}})
        self.box.current()
        self.until('no page', lambda: 'redfish.webPage' in self.refusal(
            'web', 'box', '--no-browser', '--port', port))
