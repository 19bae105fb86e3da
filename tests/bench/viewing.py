# SPDX-License-Identifier: Apache-2.0
"""The web page of a BMC in Chromium: its first view, and its memory.

Each view has a new browser context, which has nothing in its cache and no
connection. Beside it the same browser loads a small document of the same
service, without scripts.
"""

import json
import statistics

import fixtures

from kubevirt_sandbox.testing import machines
from tests.bench import memory
from tests.bench import report
from tests.bench import spread
from tests.fixtures import browser
from tests.fixtures import redfish_pod
from tests.fixtures import sandbox

#: The document without scripts.
SMALL = '/redfish'

_DISABLED = 'SUSHY_EMULATOR_KUBEVIRT_WEB_PAGE = False\n'

#: Views: what has to be visible, as CSS selectors, and whether the user is
#: logged in.
VIEWS = {'login': ('input[type=password]', False),
         'overview': ('#power.On', True),
         'whole overview': ('main .panels:not(:has([aria-busy]))', True)}

# The milliseconds from the start of the navigation to the frame that shows it.
_WATCH = """
window.seen = new Promise((resolve) => {
  const observer = new MutationObserver(() => {
    if (document.querySelector(%s)) {
      observer.disconnect();
      requestAnimationFrame(() => resolve(performance.now()));
    }
  });
  observer.observe(document, {subtree: true, childList: true});
});
"""

_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def measure(sizes, say):
    """Measure the page of one VM's BMC.

    :param sizes: :class:`tests.bench.plan.Sizes`
    :param say: function that gets the name of each part when it begins
    :returns: list of `report.Row`
    """
    with fixtures.CompoundFixture([]) as holder:
        cluster = holder.useFixture(sandbox.Sandbox(vms=0))
        for vm in 'with', 'without':
            cluster.create('virtualmachines', machines.vm(vm))
            cluster.wait_running(vm)
        say('web page: memory')
        rows = list(_unused(cluster, sizes))
        pod = holder.useFixture(redfish_pod.RedfishPod(cluster, 'with'))
        _read(pod)
        before = _kib(pod)
        chrome = holder.useFixture(browser.Browser(
            pod.url, [pod.tls.path / 'tls.crt']))
        for view in VIEWS:
            say(f'web page: first view of the {view}')
            rows += _first_views(chrome, pod, view, sizes.views)
        rows.append(report.Row('web page, used', 'KiB of PSS',
                               _kib(pod) - before))
        say('web page: serial console')
        _console(chrome, pod)
        rows.append(report.Row('web page and console, used', 'KiB of PSS',
                               _kib(pod) - before))
        return rows


def _unused(cluster, sizes):
    """Yield the row with the additional memory of a page that is not used."""
    found = []
    for _ in range(sizes.page_starts):
        # Both at the same time, so that they share the same pages.
        with redfish_pod.RedfishPod(cluster, 'with') as one, \
                redfish_pod.RedfishPod(
                    cluster, 'without', settings=_DISABLED) as other:
            for pod in one, other:
                _read(pod)
            found.append((_kib(one), _kib(other)))
    ours, others = zip(*found)
    between = spread.of([one / other for one, other in found])
    yield report.Row(
        'idle BMC, Redfish', 'KiB of PSS', statistics.median(ours),
        'without web page', statistics.median(others), between['middle'],
        between['quartiles'], between['rounds'], list(ours))
    yield report.Row('web page, not used', 'KiB of PSS', statistics.median(
        one - other for one, other in found))


def _read(pod):
    pod.request('GET', '/redfish/v1/Systems/1', expect=200)


def _kib(pod):
    return memory.pss(pod.process.pid) / 1024


def _first_views(chrome, pod, view, rounds):
    selector, logged_in = VIEWS[view]
    session = _log_in(chrome, pod) if logged_in else ''
    views, small = [], []
    for number in range(rounds):
        for ours in (True, False)[::1 if number % 2 else -1]:
            if ours:
                views.append(_view(chrome, '/', session, selector))
            else:
                small.append(_view(chrome, SMALL)[0])
    name = f'web page, first view of the {view}'
    times, sizes = zip(*views)
    between = spread.of([one / other for one, other in zip(times, small)])
    yield report.Row(
        name, 'ms, median', statistics.median(times), f'GET {SMALL}',
        statistics.median(small), between['middle'], between['quartiles'],
        between['rounds'], list(times))
    yield report.Row(name, 'kB', statistics.median(sizes))


def _log_in(chrome, pod):
    """Log in; return a script with which other pages have the session."""
    with chrome.page() as tab:
        tab.allow_error('status of 401')
        page = tab.page
        page.goto('/')
        page.get_by_label('User name').fill(redfish_pod.USER)
        page.get_by_label('Password').fill(pod.password)
        page.get_by_role('button', name='Log in').click()
        chrome.expect(page.locator('#power')).to_be_visible()
        stored = page.evaluate('JSON.stringify(sessionStorage)')
    return f'Object.assign(sessionStorage, {stored})'


def _view(chrome, path, session='', selector=None):
    """Open a page in a browser that has seen nothing.

    :param session: from `_log_in`
    :param selector: of what is waited for; None for the end of loading
    :returns: milliseconds from the start of the navigation, and kB that were
        received
    """
    with chrome.page() as tab:
        # Whether a login is needed.
        tab.allow_error('status of 40[14]')
        received = []
        client = tab.page.context.new_cdp_session(tab.page)
        client.on('Network.loadingFinished', lambda event: received.append(
            event['encodedDataLength']))
        client.send('Network.enable')
        tab.page.add_init_script(session)
        if selector:
            tab.page.add_init_script(_WATCH % json.dumps(selector))
        tab.page.goto(path)
        took = tab.page.evaluate('window.seen' if selector else _LOADED)
        return took, sum(received) / 1000


def _console(chrome, pod):
    """Open the serial console, and wait for a prompt of the guest."""
    with chrome.page() as tab:
        page = tab.page
        page.add_init_script(_log_in(chrome, pod))
        page.goto('/#/systems/1/console')
        chrome.expect(page.locator('#console')).to_be_visible()
        # A key is lost before the WebSocket is open.
        chrome.expect(page.locator('#notice')).to_have_text('')
        page.locator('#leave').click()
        page.keyboard.press('Enter')
        chrome.expect(page.locator('.xterm-rows')).to_contain_text('#')
