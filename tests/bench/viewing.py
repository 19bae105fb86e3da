# SPDX-License-Identifier: Apache-2.0
"""The web page of a BMC in Chromium: its first view, and its memory.

Each view has a new browser context, which has nothing in its cache and no
connection. Beside it the same browser loads a small document of the same
service, without scripts.
"""

import functools
import json
import statistics

import fixtures

from kubevirt_sandbox.testing import machines
from tests.bench import agent
from tests.bench import bmc
from tests.bench import memory
from tests.bench import report
from tests.bench import rounds
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
window.seen = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error('not shown')), %d);
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


def measure(sizes, say, others=()):
    """Measure the page of one VM's BMC.

    :param others: pairs of the command of another agent, e.g. of an earlier
        version, and what it is called
    :returns: iterator of `report.Row`
    """
    say('web page: memory')
    yield from _unused(sizes)
    with fixtures.CompoundFixture([]) as holder:
        agents = bmc.start(holder, others, say)
        ours = agents[0]
        for one in agents:
            ours.cluster.do(one.vm, 'start')
            ours.cluster.wait_running(one.vm)
        before = ours.pss()
        # One browser, which trusts all.
        pages = {one.name: holder.useFixture(browser.Browser(
            f'https://{agent.ADDRESS}:{one.ports["https"]}',
            [each.certificate for each in agents if not each.failures]))
            for one in agents}
        for view in VIEWS:
            yield from _first_views(agents, pages, view, sizes.views, say)
        yield _grown('web page, used', ours, before)
        say('web page: serial console')
        _console(pages['ours'], ours)
        yield _grown('web page and console, used', ours, before)


def _grown(what, one, before):
    return report.Row(what, 'KiB of PSS', 1024 * (one.pss() - before))


def _unused(sizes):
    """Yield the row with the additional memory of a page that is not used."""
    found = []
    with sandbox.Sandbox(vms=0) as cluster:
        for vm in 'with', 'without':
            cluster.create('virtualmachines', machines.vm(vm))
            cluster.wait_running(vm)
        for _ in range(sizes.page_starts):
            # Both at the same time, so that they share the same pages.
            with redfish_pod.RedfishPod(cluster, 'with') as one, \
                    redfish_pod.RedfishPod(
                        cluster, 'without', settings=_DISABLED) as other:
                for pod in one, other:
                    pod.request('GET', '/redfish/v1/Systems/1', expect=200)
                found.append([1024 * memory.pss(pod.process.pid)
                              for pod in (one, other)])
    key = 'idle BMC, Redfish', 'KiB of PSS'
    yield from rounds.rows('', [
        rounds.Side(name, None, turns=[{key: size} for size in found_sizes])
        for name, found_sizes in zip(('ours', 'without web page'),
                                     zip(*found))])
    yield report.Row('web page, not used', 'KiB of PSS', statistics.median(
        one - other for one, other in found))


def _first_views(agents, pages, view, count, say):
    name = f'web page, first view of the {view}'
    selector, logged_in = VIEWS[view]

    @functools.cache
    def session(one):
        return _log_in(pages[one.name], one) if logged_in else ''

    def turn(one):
        took, received = _view(pages[one.name], '/', session(one), selector)
        return {(name, 'ms, median'): took, (name, 'kB'): received}

    return rounds.compare(name, [
        *(bmc.side(one, ('https',), turn) for one in agents),
        rounds.Side(f'GET {SMALL}', lambda: {
            (name, 'ms, median'): _view(pages['ours'], SMALL)[0]})],
        count, say)


def _log_in(chrome, one):
    """Log in; return a script with which other pages have the session."""
    with chrome.page() as tab:
        tab.allow_error('status of 401')
        page = tab.page
        page.goto('/')
        page.get_by_label('User name').fill(agent.USER)
        page.get_by_label('Password').fill(one.password)
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
            tab.page.add_init_script(_WATCH % (browser.TIMEOUT,
                                               json.dumps(selector)))
        tab.page.goto(path)
        took = tab.page.evaluate('window.seen' if selector else _LOADED)
        return took, sum(received) / 1000


def _console(chrome, one):
    """Open the serial console, and wait for a prompt of the guest."""
    with chrome.page() as tab:
        page = tab.page
        page.add_init_script(_log_in(chrome, one))
        page.goto('/#/systems/1/console')
        chrome.expect(page.locator('#console')).to_be_visible()
        # A key is lost before the WebSocket is open.
        chrome.expect(page.locator('#notice')).to_have_text('')
        page.locator('#leave').click()
        page.keyboard.press('Enter')
        chrome.expect(page.locator('.xterm-rows')).to_contain_text('#')
