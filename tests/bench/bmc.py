# SPDX-License-Identifier: Apache-2.0
"""The BMC of one VM beside another agent: alternating rounds on one cluster.

Both are started by commands with the same contract, see `agent`. Each has a
VM of its own in the same sandbox.
"""

import concurrent.futures
import functools
import shlex
import statistics
import threading
import time

import fixtures

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import process
from tests.bench import agent
from tests.bench import commanding
from tests.bench import processor
from tests.bench import redfish_client
from tests.bench import report
from tests.bench import spread
from tests.fixtures import checkout
from tests.fixtures import sandbox

AGENTS = checkout.ROOT / 'tests' / 'bench' / 'agents'

#: The command of this checkout, and the neighbour if no other is given.
OURS = shlex.join([str(AGENTS / 'project'), str(process.BIN)])
STOCK = shlex.join([str(AGENTS / 'stock'), str(process.BIN)])

#: The neighbour of power actions of an agent without another one.
DIRECT = 'PUT start'


def measure(sizes, say, command=None, name='other'):
    """Measure this project's BMC, and another one.

    :param sizes: :class:`tests.bench.plan.Sizes`
    :param say: function that gets the name of each part when it begins
    :param command: of the other agent; None for the stock emulator
    :param name: what the other agent is called
    :returns: list of `report.Row`
    """
    if command is None:
        command, name = STOCK, 'stock'
    with fixtures.CompoundFixture([]) as holder:
        say('BMC: start')
        cluster = holder.useFixture(sandbox.Sandbox(vms=0))
        account = holder.useFixture(agent.Account(cluster)).path
        pair = []
        for number, (label, words) in enumerate((
                ('ours', OURS), (name, command))):
            vm = f'vm-{number}'
            cluster.create('virtualmachines', machines.vm(vm, 'Halted'))
            pair.append(holder.useFixture(agent.Agent(
                label, words, cluster, vm, account=account)).wait())
        return [row for part in (_memory, _gets, _commands, _power, _starts)
                for row in part(pair, sizes, say)]


def _turns(pair, rounds, needs, turn):
    """Have both take turns.

    :param needs: what an agent has to serve, keys of `agent.Agent.missing`
    :param turn: function of an agent; returns a dictionary of numbers by
        (name of a row, unit)
    :returns: list of `report.Row`
    """
    missing = [each.missing for each in pair]
    reasons = ['; '.join(each[need] for need in needs if need in each)
               for each in missing]
    found = [[], []]
    for number in range(rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            if not reasons[index]:
                found[index].append(turn(pair[index]))
    keys = next((turns[0] for turns in found if turns), ())
    return [row(*key, pair[1].name, *(
        [each[key] for each in turns] for turns in found), reasons)
        for key in keys]


def row(name, unit, neighbour, ours, other, reasons=('', '')):
    """Make a row of the values of all rounds."""
    made = functools.partial(
        report.Row, name, unit, statistics.median(ours) if ours else None,
        neighbour, values=ours or None, rounds=len(ours) or None)
    if not (ours and other):
        why = [f'{who}: not served: {reason}' for who, reason in zip(
            ('ours', neighbour), reasons) if reason]
        return made(other=statistics.median(other) if other else None,
                    reason='; '.join(why) or None)
    if not statistics.median(other):
        # A short turn may take no measurable time of the processor.
        return made(other=0, reason='too short to measure')
    ratios = [mine / one for mine, one in zip(ours, other) if one]
    between = spread.of(ratios)
    return made(other=statistics.median(other), ratio=between['middle'],
                spread=between['quartiles'])


def _memory(pair, sizes, say):
    say('BMC: memory')
    # Not yet used. The memory of fewer protocols would not be comparable.
    return _turns(pair, 1, ('redfish', 'ipmi'), lambda one: {
        ('idle BMC, both protocols', 'MiB of PSS'): one.pss()})


def _gets(pair, sizes, say):
    for protocol in 'https', 'http':
        for clients, count in ((1, sizes.bmc_gets),
                               (sizes.bmc_clients,
                                max(1, sizes.bmc_gets // 16))):
            what = (f'GET system, {protocol.upper()}, {clients} '
                    f"client{'' if clients == 1 else 's'}")
            say('BMC: ' + what)
            yield from _turns(pair, sizes.bmc_rounds, (protocol,),
                              functools.partial(_get, protocol, what,
                                                clients, count))


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
        found[what, 'ms, p99'] = 1000 * sorted(times)[
            int(0.99 * (len(times) - 1))]
    return found


def _commands(pair, sizes, say):
    what = 'IPMI commands to the BMC, one session'
    say('BMC: ' + what)

    def turn(one):
        rate, cpu = commanding.turn(one.bmc, one.process.pid, sizes.bmc_gets)
        return {(what, 'a second'): rate, (what, 'ms of CPU'): cpu}

    return _turns(pair, sizes.bmc_rounds, ('ipmi',), turn)


def _power(pair, sizes, say):
    """Turn a VM on, by each agent and by the API alone."""
    say('BMC: POST Reset On')
    cluster, vm, name = pair[0].cluster, pair[0].vm, pair[1].name
    missing = pair[1].missing
    reason = missing.get('redfish') or missing.get('power', '')
    ways = {each.name: (each.vm, each.power_on)
            for each in (pair[:1] if reason else pair)}
    ways[DIRECT] = vm, lambda: cluster.do(vm, 'start')
    turns = {way: [] for way in ways}
    for number in range(sizes.bmc_starts):
        for way in list(ways)[::1 if number % 2 else -1]:
            turns[way].append((*_accepted(cluster, *ways[way]),
                               _running(cluster, *ways[way])))
    accepted, calls, running = (
        {way: list(part) for way, part in zip(ways, parts)}
        for parts in zip(*(zip(*turns[way]) for way in ways)))
    times = {way: [mine / direct for mine, direct in zip(
        values, running[DIRECT])] for way, values in running.items()}
    for what, unit, values, neighbours in (
            ('POST Reset On', 'ms, median', accepted, (name, DIRECT)),
            ('POST Reset On', 'API calls', calls, (name, DIRECT)),
            ('On to running', 'ms, median', running, (DIRECT,)),
            ('On to running', f'times {DIRECT}', times, (name,))):
        for neighbour in neighbours:
            yield row(what, unit, neighbour, values['ours'],
                      values.get(neighbour, ()), ('', reason))


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


def _starts(pair, sizes, say):
    for what, parts, account in (
            ('Redfish', ('redfish',), pair[0].account),
            ('IPMI', ('ipmi',), pair[0].account),
            ('both protocols', agent.PARTS, pair[0].account),
            ('Redfish, kubeconfig', ('redfish',), None)):
        say(f'BMC: start, {what}')

        def turn(one):
            with agent.Agent(one.name, one.command, one.cluster, one.vm,
                             parts, account) as another:
                return {('start to first answer, ' + what, 'ms, median'):
                        1000 * max(another.first_answer(part, one)
                                   for part in parts)}

        yield from _turns(pair, sizes.bmc_starts, (*parts, 'start'), turn)
