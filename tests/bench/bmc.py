# SPDX-License-Identifier: Apache-2.0
"""The BMC of one VM beside other agents: alternating rounds on one cluster.

All are started by commands with the same contract, see `agent`. Each has a
VM of its own in the same sandbox.
"""

import concurrent.futures
import functools
import re
import shlex
import threading
import time

import fixtures

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from tests.bench import agent
from tests.bench import commanding
from tests.bench import load
from tests.bench import processor
from tests.bench import redfish_client
from tests.bench import rounds
from tests.fixtures import checkout
from tests.fixtures import sandbox

AGENTS = checkout.ROOT / 'tests' / 'bench' / 'agents'

#: The command of this checkout, and the neighbour if no other is given.
OURS = shlex.join([str(AGENTS / 'project'), str(process.BIN)])
STOCK = shlex.join([str(AGENTS / 'stock'), str(process.BIN)])

#: The neighbour of power actions of an agent without another one.
DIRECT = 'PUT start'


def measure(sizes, say, others=(), parts=None):
    """Measure this project's BMC, and other ones.

    :param others: pairs of the command of another agent and what it is
        called; the stock emulator if there are none
    :param parts: keys of `PARTS`; None for all
    :returns: iterator of `report.Row`
    """
    with fixtures.CompoundFixture([]) as holder:
        say('BMC: start')
        agents = start(holder, others or ((STOCK, 'stock'),), say)
        for name in parts or PARTS:
            yield from PARTS[name](agents, sizes, say)


def start(holder, others, say):
    """Start this project's agent and others, each with a VM of its own.

    :param holder: fixture that ends them
    :param others: pairs of command and name
    :returns: list of `agent.Agent`, ours first; others may have failed
    """
    cluster = holder.useFixture(sandbox.Sandbox(vms=0))
    account = holder.useFixture(agent.Account(cluster)).path
    agents = []
    for number, (command, name) in enumerate(((OURS, 'ours'), *others)):
        vm = f'vm-{number}'
        cluster.create('virtualmachines', machines.vm(vm, 'Halted'))
        one = agent.Agent(name, command, cluster, vm, account=account)
        agents.append(one)
        try:
            # The first start of all writes byte code, which takes memory.
            with one:
                one.wait()
            holder.useFixture(one).wait()
        except Exception as exc:
            if number == 0:
                raise
            one.failures = dict.fromkeys(agent.NEEDS, rounds.failure(exc))
            say(f'{name} failed: {process.cause(exc)}')
    return agents


def side(one, needs, turn):
    """Return the `rounds.Side` of an agent.

    :param needs: what it has to serve, of `agent.NEEDS`, the most special
        last. That is not asked for again after a time limit, and nothing of an
        agent that has ended
    :param turn: function of an agent that returns `rounds.Figures`
    """
    def checked():
        try:
            return turn(one)
        except Exception as exc:
            try:
                one.check()
            except RuntimeError as ended:
                one.failures = dict.fromkeys(agent.NEEDS,
                                             rounds.failure(ended))
                raise
            if isinstance(exc, TimeoutError):
                one.failures[needs[-1]] = rounds.failure(exc)
            raise

    failures = [one.failures[need] for need in needs if need in one.failures]
    if failures:
        return rounds.Side(one.name, checked, failures[0], failed=True)
    missing = one.missing
    return rounds.Side(one.name, checked, rounds.not_served('; '.join({
        missing[need]: need for need in needs if need in missing})))


def _turns(what, agents, count, needs, turn, say):
    """Have agents take turns; parameters are those of `side`.

    :param what: name of the row
    :param count: number of rounds
    :returns: iterator of `report.Row`
    """
    return rounds.compare(what, [side(one, needs, turn) for one in agents],
                          count, say)


def _memory(agents, sizes, say):
    what = 'idle BMC, both protocols'
    # Not yet used. The memory of fewer protocols would not be comparable.
    return _turns(what, agents, 1, ('redfish', 'ipmi'), lambda one: {
        (what, 'MiB of PSS'): one.pss()}, say)


def _gets(agents, sizes, say):
    for protocol in 'https', 'http':
        for clients, count in ((1, sizes.bmc_gets),
                               (sizes.bmc_clients,
                                max(1, sizes.bmc_gets // 16))):
            what = (f'GET system, {protocol.upper()}, {clients} '
                    f"client{'' if clients == 1 else 's'}")
            yield from _turns(what, agents, sizes.bmc_rounds, (protocol,),
                              functools.partial(_get, protocol, what,
                                                clients, count), say)


def _get(protocol, what, clients, count, one):
    times, rate, (cpu, api) = redfish_client.repeat(
        lambda: one.connection(protocol), clients, count, lambda: [
            processor.seconds(one.process.pid),
            processor.seconds(one.cluster.process.pid)])
    found = {(what, 'a second'): rate,
             (what, 'ms of CPU'): 1000 * cpu / len(times)}
    if clients == 1:
        found[what, 'ms of CPU, API server'] = 1000 * api / len(times)
    else:
        found[what, 'ms, p99'] = 1000 * load.percentile(times, 99)
    return found


def _commands(agents, sizes, say):
    what = 'IPMI commands to the BMC, one session'

    def turn(one):
        rate, cpu = commanding.turn(one.bmc, one.process.pid, sizes.bmc_gets)
        return {(what, 'a second'): rate, (what, 'ms of CPU'): cpu}

    return _turns(what, agents, sizes.bmc_rounds, ('ipmi',), turn, say)


def _power(agents, sizes, say):
    """Turn a VM on, by each agent and by the API alone."""
    what, runs, times = 'POST Reset On', 'On to running', f'times {DIRECT}'
    say('BMC: ' + what)
    cluster = agents[0].cluster

    def turn(vm, start):
        took, calls = _accepted(cluster, vm, start)
        return {(what, 'ms, median'): took, (what, 'API calls'): calls,
                (runs, 'ms, median'): _running(cluster, vm, start)}

    direct = rounds.Side(DIRECT, lambda: turn(
        agents[0].vm, lambda: cluster.do(agents[0].vm, 'start')))
    sides = [*(side(one, ('redfish', 'power'),
                    lambda one: turn(one.vm, one.power_on))
               for one in agents), direct]
    rounds.alternate(sides, sizes.bmc_starts, say)
    for each in sides:
        for mine, other in zip(each.turns, direct.turns):
            mine[runs, times] = (mine[runs, 'ms, median']
                                 / other[runs, 'ms, median'])
    # A time until it runs is compared with that of the API alone, and what it
    # is of that with other agents.
    return [row for row in rounds.rows(what, sides) if row.name != runs
            or (row.unit == times) == (row.neighbour != DIRECT)]


def _accepted(cluster, vm, start):
    """Turn a VM on, and off again.

    :param start: function that returns when its start was accepted
    :returns: milliseconds until that, and the number of API calls, without
        the Event of the action, which is written beside it
    """
    cluster.reset_stats()
    began = time.perf_counter()
    start()
    took = time.perf_counter() - began
    calls = cluster.stats()
    cluster.wait_running(vm)
    _off(cluster, vm)
    # Watches are renewed from time to time.
    return 1000 * took, (calls['total'] - calls['verbs'].get('watch', 0)
                         - calls['calls'].get('create', {}).get('events', 0))


def _running(cluster, vm, start):
    """Turn a VM on, and off again; return milliseconds until it ran."""
    listed = threading.Event()

    def runs(vmi):
        # The first call is made before the watch.
        listed.set()
        return vmi is not None and vmi.get('status', {}).get(
            'phase') == 'Running'

    def wait():
        cluster.wait('virtualmachineinstances', vm, runs)
        return time.perf_counter()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(wait)
        listed.wait()
        began = time.perf_counter()
        start()
        took = running.result() - began
    _off(cluster, vm)
    return 1000 * took


def _off(cluster, vm):
    cluster.do(vm, 'stop')
    cluster.wait_stopped(vm)


#: What starts, the parts of an agent, and whether it has a pod's account.
_STARTED = (('Redfish', ('redfish',), True), ('IPMI', ('ipmi',), True),
            ('both protocols', agent.PARTS, True),
            ('Redfish, kubeconfig', ('redfish',), False))


def _start(one, parts, has_account, env=None):
    """Start another agent; return the seconds to its answers, and its output.
    """
    with agent.Agent(one.name, one.command, one.cluster, one.vm, parts,
                     one.account if has_account else None, env) as another:
        return max(another.first_answer(part, one)
                   for part in parts), another.process.output


def _time(what, parts, has_account, one):
    return {(what, 'ms, median'): 1000 * _start(one, parts, has_account)[0]}


def _import(what, parts, has_account, one):
    """Have Python tell what it imports, python(1), -X importtime."""
    times = re.findall(r'(?m)^import time: *([0-9]+) \|', _start(
        one, parts, has_account, {'PYTHONPROFILEIMPORTTIME': '1'})[1])
    # Others are not written in Python.
    return {(what, 'modules'): len(times),
            (what, 'ms'): sum(map(int, times)) / 1000} if times else {}


def _starts(what, turn, agents, sizes, say):
    for protocols, parts, has_account in _STARTED:
        name = f'{what}, {protocols}'
        yield from _turns(
            name, agents, sizes.bmc_starts if turn is _time else 1,
            (*parts, 'start'), functools.partial(
                turn, name, parts, has_account), say)


#: Functions of (agents, sizes, say) that return rows.
PARTS = {'memory': _memory, 'get': _gets, 'ipmi': _commands, 'power': _power,
         'start': functools.partial(_starts, 'start to first answer', _time),
         'imports': functools.partial(
             _starts, 'imports until the first answer', _import)}
