# SPDX-License-Identifier: Apache-2.0
"""The command ``tools/screenshots``: pictures of the web page.

Names, UUIDs and times in the pictures are fixed, so that a picture changes
only when the page, the fonts or the browser do.
"""

import argparse
import contextlib
import io
import pathlib
import subprocess
import sys
import uuid

import fixtures
from PIL import Image

from kubevirt_sandbox.testing import images
from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import qemu
from tests.fixtures import browser
from tests.fixtures import checkout
from tests.fixtures import emulator
from tests.fixtures import image_server
from tests.fixtures import redfish_pod
from tests.fixtures import sandbox

FOLDER = checkout.ROOT / 'doc' / 'source' / '_static' / 'web'

#: Bytes that a picture may have.
LIMIT = 60_000

SIZE = {'width': 1280, 'height': 800}
SHORT = {'width': 1280, 'height': 600}
NARROW = {'width': 360, 'height': 800}

#: The machine whose views are shown, and the node that its console names.
NAME = 'rack1-node-01'

# Replaces what differs from one run to the next.
_FIX = """() => {
  const start = Date.UTC(2026, 0, 1, 12);
  document.querySelectorAll('time').forEach((one, i) => {
    one.textContent = new Date(start - 60000 * i).toLocaleString();
  });
  document.querySelectorAll('dd').forEach((one) => {
    if (one.textContent.includes('127.0.0.1:')) {
      one.textContent = one.textContent.replace(
        /127.0.0.1:.*[/]/, 'images.example.org/');
    }
  });
  document.querySelectorAll('progress').forEach((one) => {
    one.value = 25;
    one.parentNode.lastChild.textContent = '25 %';
  });
}"""

#: What the console shows: commands of the guest, and what to wait for.
_SESSION = (('login', 'login: '), ('root', 'Password: '), ('console', '# '),
            ('uname -mrs', 'x86_64'),
            ('cat /sys/class/dmi/id/sys_vendor', 'KubeVirt'))


class Pictures:
    """Takes pictures.

    :param folder: path of the folder for them
    """

    def __init__(self, folder):
        self._folder = folder

    def take(self, tab, name):
        """Save what a page shows as a PNG with 128 colours.

        :param tab: `browser.Page`
        :param name: of the file, without extension
        """
        tab.page.mouse.move(0, 0)
        tab.page.evaluate(_FIX)
        picture = Image.open(io.BytesIO(tab.page.screenshot(
            animations='disabled', caret='hide')))
        path = self._folder / f'{name}.png'
        picture.convert('RGB').quantize(128, dither=Image.Dither.NONE).save(
            path, optimize=True)
        size = path.stat().st_size
        print(f'{path} ({size / 1000:.0f} kB)', flush=True)
        if size > LIMIT:
            raise ValueError(f'{path} has {size} bytes: more than {LIMIT}')


def _uuid(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def _machine(number):
    rack, node = divmod(number, 14)
    obj = machines.vm(f'rack{rack + 1}-node-{node + 1:02}',
                      'Halted' if number % 5 == 3 else 'RerunOnFailure')
    name = obj['metadata']['name']
    spec = obj['spec']['template']['spec']
    domain = spec['domain']
    domain['firmware']['uuid'] = _uuid(name)
    domain['devices']['interfaces'][0]['macAddress'] = (
        f'52:54:00:00:{rack + 1:02x}:{node + 1:02x}')
    if number == 5:
        # It cannot run.
        spec['nodeSelector'] = {'gpu': 'true'}
    return obj


def _log_in(chrome, tab, pod):
    """Log in, and return Playwright's page."""
    page = tab.page
    # The page asks whether a login is needed.
    tab.allow_error('status of 401')
    page.goto('/')
    page.get_by_label('User name').fill(redfish_pod.USER)
    page.get_by_label('Password').fill(pod.password)
    page.get_by_role('button', name='Log in').click()
    chrome.expect(page.locator('#power')).to_have_text('On')
    return page


@contextlib.contextmanager
def _browser(url, certificates=()):
    """Run a browser; only one can run at a time.

    :returns: context manager with the `browser.Browser`, and a function that
        opens a `browser.Page`
    """
    with browser.Browser(url, certificates) as chrome:
        def tab(**more):
            return chrome.useFixture(chrome.page(**{
                'viewport': SIZE, 'locale': 'en-GB', 'timezone_id': 'UTC',
                **more}))
        yield chrome, tab


def simulated(pictures):
    """Take those that need no real guest."""
    with fixtures.CompoundFixture([]) as holder:
        cluster = holder.useFixture(sandbox.Sandbox(vms=0))
        for number in range(42):
            cluster.create('virtualmachines', _machine(number))
        for number in range(42):
            if number % 5 != 3 and number != 5:
                cluster.wait_running(
                    _machine(number)['metadata']['name'], timeout=120)
        service = holder.useFixture(emulator.Emulator(
            cluster.bmc_account(), server='pod'))
        with _browser(service.url) as (chrome, tab):
            for name, scheme in ('list', 'light'), ('list-dark', 'dark'):
                one = tab(color_scheme=scheme)
                one.page.goto('/')
                chrome.expect(one.page.get_by_role('status').filter(
                    has_text='42 of 42')).to_be_visible()
                pictures.take(one, name)

        pod = holder.useFixture(redfish_pod.RedfishPod(
            cluster, NAME, proxy=cluster.upload_proxy(),
            settings='SUSHY_EMULATOR_KUBEVIRT_MEDIA_ALLOW_LOOPBACK = True\n'))
        with _browser(pod.url, [pod.tls.path / 'tls.crt']) as (chrome, tab):
            narrow = tab(viewport=NARROW, color_scheme='dark')
            _log_in(chrome, narrow, pod)
            pictures.take(narrow, 'narrow')
            one = tab()
            page = _log_in(chrome, one, pod)
            pictures.take(one, 'overview')
            _log(chrome, page, pod)
            page.set_viewport_size(SHORT)
            pictures.take(one, 'log')
            page.set_viewport_size(SIZE)
            _media(holder, cluster, chrome, page)
            pictures.take(one, 'media')


def _log(chrome, page, pod):
    """Show a log in which something has happened."""
    page.get_by_role('link', name='Log', exact=True).click()
    for kind, state in ('ForceOff', 'Off'), ('On', 'On'):
        pod.request('POST', '/redfish/v1/Systems/1/Actions/'
                    'ComputerSystem.Reset', {'ResetType': kind}, 204)
        chrome.expect(page.locator('#power')).to_have_text(state)
    chrome.expect(page.locator('.log li').nth(4)).to_be_visible()


def _media(holder, cluster, chrome, page):
    """Begin an import."""
    server = holder.useFixture(image_server.ImageServer())
    cluster.request('POST', '/sandbox/imports', {
        'url': '.*', 'rate': 200_000}).raise_for_status()
    page.get_by_role('link', name='Media', exact=True).click()
    panel = page.get_by_role('region', name='Virtual CD')
    panel.get_by_label('URL of the image').fill(
        f'{server.url}/size-40000000/installer.iso')
    panel.get_by_role('button', name='Insert', exact=True).click()
    chrome.expect(panel.get_by_role('progressbar')).to_be_visible()
    chrome.expect(page.locator('.messages .good')).to_be_visible()


def real(pictures):
    """Take those of the consoles of a guest in QEMU."""
    with fixtures.CompoundFixture([]) as holder:
        cluster = holder.useFixture(sandbox.Sandbox(vms=0, arguments=(
            '--guests', 'qemu', '--qemu-accel', qemu.ACCELERATOR)))
        files = holder.useFixture(qemu.WebServer())
        obj = qemu.vm(NAME, files.url + 'disk')
        domain = obj['spec']['template']['spec']['domain']
        domain['firmware']['uuid'] = _uuid(NAME)
        cluster.create('virtualmachines', obj)
        cluster.wait_running(NAME, timeout=120)
        pod = holder.useFixture(redfish_pod.RedfishPod(cluster, NAME))
        with _browser(pod.url, [pod.tls.path / 'tls.crt']) as (chrome, tab):
            one = tab()
            page = _log_in(chrome, one, pod)
            page.get_by_role('link', name='Serial console').click()
            screen = page.locator('.xterm-rows')
            chrome.expect(screen).to_contain_text(qemu.DISK, timeout=150_000)
            page.get_by_text('Use keyboard in the console').click()
            for words, answer in _SESSION:
                page.keyboard.type(words + '\n')
                chrome.expect(screen).to_contain_text(answer)
            pictures.take(one, 'console')
            page.get_by_role('link', name='Display').click()
            chrome.expect(page.locator('#screen canvas')).to_be_visible()
            page.wait_for_timeout(1000)
            pictures.take(one, 'display')


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog='tools/screenshots',
        description='Make the pictures of the web page in doc/source/web.rst '
        'and README.rst: of simulated machines, and of the consoles of a '
        'guest in QEMU. Takes two minutes, and needs Chromium and the '
        'packages of tests with QEMU, see bindep.txt.')
    parser.add_argument(
        '--folder', type=pathlib.Path, default=FOLDER, metavar='DIR',
        help='write them there (default: doc/source/_static/web)')
    parser.add_argument(
        '--only', choices=('simulated', 'real'),
        help='only those without, or with a guest in QEMU')
    options = parser.parse_args(argv)
    if options.only != 'simulated' and (missing := qemu.needed()):
        sys.exit('tools/screenshots: install the packages '
                 f'{" ".join(missing)}, or use --only simulated')
    pictures = Pictures(options.folder)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        # Installs Chromium if it is missing.
        browser.ENVIRONMENT.prepare()
        for take in (simulated, real):
            if options.only in (None, take.__name__):
                take(pictures)
    except (OSError, ValueError, images.Missing,
            subprocess.CalledProcessError) as exc:
        sys.exit(f'tools/screenshots: {exc}')


if __name__ == '__main__':
    main()
