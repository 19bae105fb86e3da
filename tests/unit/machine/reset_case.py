# SPDX-License-Identifier: Apache-2.0
"""Machines in the states in which they are reset, and what is sent."""

import fixtures
from oslotest import base

from sushy_kubevirt.machine import power_state
from sushy_kubevirt.machine import run_strategy
from tests.unit.machine import fakes

R = power_state.ResetType
NOW = {'gracePeriod': 0}
RESTART_NOW = {'gracePeriodSeconds': 0}

#: The states of a VM under each strategy, as arguments of `fakes.vmi`.
RUNNING = dict(phase='Running')

PAUSED = dict(phase='Running',
              conditions=[fakes.condition('Paused', 'True')])

STARTING = dict(phase='Scheduling')
STOPPING = dict(phase='Running', deleting=True)
SUCCEEDED = dict(phase='Succeeded')
FAILED = dict(phase='Failed')
NO_VMI = None
SAVE = 'save'       # a patch of annotations alone
SET = 'set'         # a patch of the run strategy

# Requests a restart of a VMI that ends.
REPLACE = ['status', 'restart']


def halt(machine):
    """Have the effect of KubeVirt's stop on the VM."""
    if machine.strategy in run_strategy.LOST_BY_STOP:
        machine.vm['spec']['runStrategy'] = 'Halted'
    elif machine.vmi is not None:
        machine.vm['status']['stateChangeRequests'] = [
            {'action': 'Stop', 'uid': machine.vmi['metadata']['uid']}]


def request_restart(machine):
    machine.vm['status']['stateChangeRequests'] = [fakes.STOP, fakes.START]


def set_paused(machine):
    machine.vmi['status']['conditions'] = [
        fakes.condition('Paused', 'True')]


def clear_paused(machine):
    machine.vmi['status']['conditions'] = []


def end_vmi(machine):
    machine.writes.append(('wait', None))
    machine.vmi = None
    machine.vm['status'].pop('stateChangeRequests', None)


def sent(machine):
    """Return the requests sent to KubeVirt, in the words of TABLE."""
    words = []
    for name, body in machine.writes:
        if name == 'patch':
            paths = [operation['path'] for operation in body]
            name = SET if '/spec/runStrategy' in paths else SAVE
        elif body in (NOW, RESTART_NOW):
            name += ' 0'
        words.append(name)
    return words


class ResetTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kube.retry.FIRST_PAUSE', 0.001))

    def machine(self, strategy, state=RUNNING, requests=(), **kwargs):
        vmi = fakes.vmi(**state) if isinstance(state, dict) else state
        settings = {key: kwargs.pop(key) for key in
                    ('run_strategy', 'write_deadline', 'gates', 'faults',
                     'on_wait') if key in kwargs}
        made = fakes.Machine(
            fakes.vm(strategy, requests=requests, **kwargs), vmi,
            **{'on_wait': [end_vmi], **settings})
        made.effects = {'stop': halt, 'restart': request_restart,
                        'pause': set_paused, 'unpause': clear_paused}
        return made
