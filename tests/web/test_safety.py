# SPDX-License-Identifier: Apache-2.0
"""Hostile texts, pages of other origins, and where the token is."""

import json
import re
import urllib.parse

from kubevirt_sandbox.testing import webserver
from tests.fixtures import file_servers
from tests.fixtures import redfish_pod
from tests.web import case

HOSTILE = ('"\'><img src=x onerror="alert(1)"><script>alert(2)</script>'
           '<a href="javascript:alert(3)">&amp;')
SYSTEM = '/redfish/v1/Systems/1'
CD = SYSTEM + '/VirtualMedia/Cd'
SESSIONS = '/redfish/v1/SessionService/Sessions'

VIEWS = ('Overview', 'Media', 'Firmware', 'Log', 'Certificates', 'Tasks',
         'Sessions', 'Accounts')

#: Properties that the page follows or finds resources with.
_KEPT = re.compile(r'@odata\..*|target|.*Ur[il]|.*URI|.*Link|Id|Health|'
                   r'AttributeRegistry|.*Reference|BootOrder')


def poison(value, name=''):
    """Append the hostile text to every text of a resource."""
    if isinstance(value, dict):
        return {key: poison(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [poison(one, name) for one in value]
    if isinstance(value, str) and not _KEPT.fullmatch(name):
        return value + HOSTILE
    return value


class TextTestCase(case.WebPodTestCase):
    """Texts of the cluster and of users stay texts."""

    SETTINGS = 'SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK = True\n'

    def setUp(self):
        super().setUp()
        self.page.on('dialog', lambda one: self.fail(one.message))
        self.main = self.page.locator('main')
        self.log_in()

    def show(self, view):
        self.page.get_by_role('link', name=view, exact=True).click()
        self.expect(self.page).to_have_title(re.compile(view))
        self.expect(self.page.get_by_text('Loading…')).to_have_count(0)

    def assert_harmless(self):
        self.expect(self.page.locator(
            'img, body script, [src=x], [onerror], a[href^=javascript]'
        )).to_have_count(0)

    def test_event(self):
        vm = self.sandbox.vm('vm-0')
        self.sandbox.create('events', {
            'metadata': {'generateName': 'vm-0.'}, 'type': 'Warning',
            'reason': 'R' + HOSTILE, 'message': 'M' + HOSTILE,
            'involvedObject': {
                'apiVersion': vm['apiVersion'], 'kind': vm['kind'],
                'name': 'vm-0', 'namespace': 'default',
                'uid': vm['metadata']['uid']},
            'source': {'component': 'S' + HOSTILE},
            'firstTimestamp': '2026-01-01T00:00:00Z',
            'lastTimestamp': '2026-01-01T00:00:00Z'})
        self.show('Log')
        self.expect(self.main).to_contain_text('M' + HOSTILE)
        self.assert_harmless()

    def test_asset_tag_and_host_name(self):
        self.pod.request('PATCH', SYSTEM, {'AssetTag': HOSTILE[:63]}, 204)
        self.page.reload()
        self.expect(self.page.get_by_label('Asset tag')).to_have_value(
            HOSTILE[:63])
        self.assert_harmless()

    def test_context_of_a_session(self):
        self.pod.request('POST', SESSIONS, {
            'UserName': 'admin', 'Password': self.pod.password,
            'Context': HOSTILE}, 201)
        self.show('Sessions')
        self.expect(self.main).to_contain_text(HOSTILE)
        self.assert_harmless()

    def test_name_of_an_account(self):
        self.tab.allow_error('status of 400')
        self.show('Accounts')
        panel = self.page.get_by_role('region', name='New account')
        for name in '<i>', HOSTILE:
            panel.get_by_label('User name').fill(name)
            panel.get_by_label('Password', exact=True).fill('password-1')
            panel.get_by_role('button', name='Create account').click()
            # As an account, or in the error.
            self.expect(self.page.locator('.messages')).to_contain_text(name)
        self.assert_harmless()

    def test_image(self):
        self.tab.allow_error('status of 400')
        images = self.useFixture(file_servers.Server(
            file_servers.image(b'x' * 5000)))
        name = '"><img src=x onerror=alert(1)>.iso'
        url = f'{images.url}/{urllib.parse.quote(name)}?<b>'
        self.show('Media')
        panel = self.page.get_by_role('region', name='Virtual CD')
        panel.get_by_label('URL of the image').fill(url)
        panel.get_by_role('button', name='Insert', exact=True).click()
        self.expect(self.page.locator('body')).to_contain_text('img')
        self.expect(panel).to_contain_text('Complete')
        self.assert_harmless()
        self.show('Tasks')
        self.expect(self.main).to_contain_text('Complete')
        self.assert_harmless()
        self.pod.request('POST', CD + '/Actions/VirtualMedia.EjectMedia', {},
                         204)

    def test_every_text_of_every_resource(self):
        # KubeVirt's reason is one of them.
        self.sandbox.patch('virtualmachines', 'vm-0', {'spec': {'template': {
            'spec': {'nodeSelector': {'kubernetes.io/hostname': 'none'}}}}})
        self.addCleanup(
            self.sandbox.patch, 'virtualmachines', 'vm-0', {'spec': {
                'template': {'spec': {'nodeSelector': None}}}})
        reset = SYSTEM + '/Actions/ComputerSystem.Reset'
        self.pod.request('POST', reset, {'ResetType': 'ForceOff'}, 204)
        self.sandbox.wait_stopped('vm-0')
        self.pod.request('POST', reset, {'ResetType': 'On'})
        self.addCleanup(self.pod.request, 'POST', reset,
                        {'ResetType': 'ForceOff'})
        self.expect(self.page.get_by_text('cannot run')).to_be_visible()

        def answer(route):
            request = route.request
            if request.method != 'GET' or request.url.endswith('/SSE'):
                route.continue_()
                return
            found = self.pod.request(
                'GET', request.url.removeprefix(self.pod.url))
            route.fulfill(status=found.status_code, json=poison(found.json()))

        self.page.route('**/redfish/v1/**', answer)
        self.tab.allow_error('status of 404')
        for view in VIEWS:
            self.show(view)
            if view not in ('Tasks', 'Certificates'):
                self.expect(self.main).to_contain_text(HOSTILE)
            self.assert_harmless()
        self.page.unroute_all(behavior='ignoreErrors')


class TokenTestCase(case.WebPodTestCase):

    def test_token_is_in_a_header_only(self):
        self.log_in()
        found = json.loads(self.page.evaluate(
            'sessionStorage.getItem("sushy-kubevirt.session")'))
        token = found['token']
        sockets = []
        self.page.on('websocket', lambda one: sockets.append(one.url))
        for view in 'Serial console', 'Log', 'Accounts':
            self.page.get_by_role('link', name=view, exact=True).click()
            self.expect(self.page).to_have_title(re.compile(view))
            if view == 'Serial console':
                # It is shown once its modules are loaded.
                self.expect(self.page.locator('#console')).to_be_visible()
        self.assertEqual(1, len(sockets))
        self.assertNotIn(token, str(self.tab.requests + sockets))
        self.assertNotIn(token, self.page.content())
        self.assertNotIn(token, self.page.url)
        self.assertNotIn(token, self.pod.process.output)
        self.assertEqual([], self.page.context.cookies())
        self.assertEqual(0, self.page.evaluate('localStorage.length'))
        self.page.get_by_role('button', name='Log out').click()
        self.expect(self.page.get_by_text(
            'You have logged out.')).to_be_visible()
        self.assertEqual(0, self.page.evaluate('sessionStorage.length'))
        self.assertNotIn(token, self.page.content())

    def test_headers_of_all_files(self):
        self.log_in()
        files = {one.removeprefix(self.pod.url) for one in self.tab.requests
                 if '/web/' in one}
        self.assertIn('/web/page.css', files)
        for path in '/', *files:
            headers = self.pod.request('GET', path, expect=200).headers
            self.assertEqual('nosniff', headers['X-Content-Type-Options'])
            self.assertIn("frame-ancestors 'none'",
                          headers['Content-Security-Policy'])
            self.assertEqual('same-origin',
                             headers['Cross-Origin-Resource-Policy'])


class Origins:
    """A page of another origin, at ``attacker``, attacks ``target``."""

    #: Settings of the browser's context.
    OPTIONS = {}

    def setUp(self):
        super().setUp()
        self.attacker = self.useFixture(webserver.WebServer(_Attacker))
        self.other = self.open_tab(**self.OPTIONS)
        # What it does is refused.
        self.other.allow_error('')
        self.other.page.goto(self.attacker.url)
        if self.sandbox.vmi('vm-0'):
            self.sandbox.do('vm-0', 'stop')
        self.sandbox.wait_stopped('vm-0')

    def socket(self, page):
        return page.evaluate('''url => new Promise((resolve) => {
            const socket = new WebSocket(url, ["binary"]);
            socket.onopen = () => resolve("open");
            socket.onclose = () => resolve("closed");
        })''', f'{self.target}{self.system}/SerialConsole'.replace(
            'http', 'ws', 1))

    def test_form(self):
        for path, kind in (
                ('/Actions/ComputerSystem.Reset', 'text/plain'),
                ('/Actions/ComputerSystem.SetDefaultBootOrder', ''),
                ('/VirtualMedia/Cd/Actions/VirtualMedia.EjectMedia', ''),
                ('/VirtualMedia/Cd/Upload', 'multipart/form-data')):
            self.other.page.goto(self.attacker.url)
            with self.other.page.expect_navigation() as answer:
                self.other.page.evaluate('''([url, kind]) => {
                    const form = document.createElement("form");
                    Object.assign(form, {action: url, method: "POST"});
                    form.enctype = kind;
                    if (kind) {
                      const input = document.createElement("input");
                      input.name = '{"ResetType": "On", "x": "';
                      input.value = '"}';
                      form.append(input);
                    }
                    document.body.append(form);
                    form.submit();
                }''', [self.target + self.system + path, kind])
            self.assertEqual(403, answer.value.status, path)
        self.assert_off()

    def test_fetch(self):
        for kind in 'text/plain', 'application/json':
            self.other.page.evaluate(
                '''async ([url, kind]) => { try { await fetch(url, {
                method: "POST", mode: "no-cors", credentials: "include",
                headers: {"Content-Type": kind},
                body: '{"ResetType": "On"}'}); } catch {} }''',
                [self.target + self.system + '/Actions/ComputerSystem.Reset',
                 kind])
        self.assert_off()
        # It reads nothing, either.
        self.assertEqual('TypeError', self.other.page.evaluate(
            '''async (url) => { try {
            return await (await fetch(url, {credentials: "include"})).text();
            } catch (error) { return error.name; } }''',
            self.target + self.system))

    def test_upload(self):
        self.other.page.evaluate(
            '''async (url) => { const data = new FormData();
            data.append("ImageFile", new Blob(["x".repeat(5000)]), "x.iso");
            await fetch(url, {method: "POST", mode: "no-cors", body: data,
            credentials: "include"}); }''',
            self.target + self.system + '/VirtualMedia/Cd/Upload')
        self.assertEqual([], self.sandbox.list('datavolumes'))

    def test_websocket(self):
        self.assertEqual('closed', self.socket(self.other.page))

    def test_frame(self):
        self.other.page.evaluate('''url => { const one =
            document.createElement("iframe"); one.src = url;
            document.body.append(one); return new Promise((resolve) => {
            one.onload = resolve; }); }''', self.target + '/')

        def frames():
            # Playwright learns of them while it waits for an answer.
            self.other.page.evaluate('0')
            return [one.url for one in self.other.page.frames[1:]]

        self.until(lambda: frames() == ['chrome-error://chromewebdata/'],
                   describe=frames)

    def assert_off(self):
        self.assertIsNone(self.sandbox.vmi('vm-0'))


class _Attacker(webserver.Handler):

    def do_GET(self):
        file_servers.send(self, 200, b'<!DOCTYPE html><title>Other</title>'
                          b'<link rel="icon" href="data:,"><body>',
                          Content_Type='text/html')


class WithoutLoginTestCase(Origins, case.WebEmulatorTestCase):

    VMS = 1

    def setUp(self):
        self.target = self.emulator.url
        [self.system] = self.emulator.systems()
        super().setUp()

    def test_own_page_opens_the_websocket(self):
        self.page.goto('/')
        self.assertEqual('open', self.socket(self.page))


class StoredPasswordTestCase(Origins, case.WebPodTestCase):
    """The browser has the password, and sends it when it is asked to."""

    UPLOADS = True

    def setUp(self):
        self.OPTIONS = {'http_credentials': {
            'username': redfish_pod.USER, 'password': self.pod.password}}
        self.target, self.system = self.pod.url, SYSTEM
        super().setUp()

    def test_stored_password_is_sent(self):
        # Without it, the other tests would show nothing.
        with self.other.page.expect_navigation() as answer:
            self.other.page.evaluate(
                'url => { location.href = url; }', self.target + self.system)
        self.assertEqual(200, answer.value.status)
