# SPDX-License-Identifier: Apache-2.0
"""Whether a node's objects are ready, and what keeps them from it.

Reasons are those of KubeVirt, CDI, the scheduler and the operator: they are
in the conditions of the objects.
"""

from __future__ import annotations

import dataclasses
import enum

from sushy_kubevirt.cluster.objects import volumes


class Step(enum.StrEnum):
    """Steps of a node on its way to being ready, in their order."""

    #: KubeVirt's controller has seen the VirtualMachine.
    VM = 'vm'

    #: All volumes are filled, or will be when the VM is first started.
    VOLUMES = 'volumes'

    #: The BMC's pod serves Redfish and IPMI.
    BMC = 'bmc'


@dataclasses.dataclass(frozen=True)
class State:
    """How far a node is.

    :param done: tuple of `Step`
    :param problem: what keeps it from the next one, text; '' if nothing is
        known but that it takes time
    """

    done: tuple = ()
    problem: str = ''

    @property
    def ready(self):
        """Whether all steps are done."""
        return len(self.done) == len(Step)


#: Phases of DataVolumes that are filled, or are filled when the VM is
#: started (CDI, doc/waitforfirstconsumer-storage-handling.md).
_FILLED = 'Succeeded', 'WaitForFirstConsumer', 'PendingPopulation'

#: Reasons of a DataVolume's false conditions that are part of its progress.
_PROGRESS = ('', 'Pending', 'Completed', 'ContainerCreating', 'NoPodFound',
             'Running', 'ImportScheduled', 'ImportInProgress',
             'CloneScheduled', 'CloneInProgress', 'NotFound', 'Lost',
             'SourceInUse', 'SmartClone', 'TransferRunning',
             'WaitForFirstConsumer', 'ClaimLost')

#: Parts of the texts of failures that need a change of the quota, of the
#: cluster's nodes or of the file.
_LASTING = ('exceeded quota', 'nodes are available', 'no nodes available',
            'ErrClaimNotValid', 'denied the request', 'got 404',
            'manifest unknown', 'too small to contain',
            'SecretUnusable')

#: The scheduler says that no nodes are available, too, while a volume is made.
_PASSING = 'unbound immediate PersistentVolumeClaims'


def of_node(vm, data_volumes, bmc):
    """Tell how far a node is.

    :param vm: dict, the VirtualMachine; None without
    :param data_volumes: dict of name and DataVolume
    :param bmc: dict, the VirtualMachineBMC; None without
    :returns: a `State`
    """
    done, problems = [], []
    checks = ((Step.VM, _vm_problem(vm)),
              (Step.VOLUMES, vm and _volumes_problem(vm, data_volumes)),
              (Step.BMC, _bmc_problem(bmc)))
    for step, problem in checks:
        if problem is None and len(done) == list(Step).index(step):
            done.append(step)
        elif problem:
            problems.append(problem)
    return State(tuple(done), problems[0] if problems else '')


def lasts(problem):
    """Return whether a problem does not pass by itself.

    :param problem: text
    """
    return _PASSING not in problem and any(
        one in problem for one in _LASTING)


def pod_problem(pod):
    """Say why a pod has no node, in the scheduler's words.

    :param pod: dict
    :returns: text; '' if it has one, or the scheduler has not seen it
    """
    one = _conditions(pod).get('PodScheduled')
    if one is None or one['status'] != 'False':
        return ''
    return _text('Pod', pod['metadata']['name'], one)


def vm_problem(vm):
    """Say why a VM fails, in KubeVirt's or the scheduler's words.

    :param vm: dict, a VirtualMachine
    :returns: text; '' if it does not
    """
    conditions = _conditions(vm)
    checks = [('Failure', 'True'), ('PodScheduled', 'False'),
              ('Synchronized', 'False')]
    if conditions.get('Synchronized', {}).get('reason') == 'FailedPvcNotFound':
        # KubeVirt also calls a VM unschedulable whose PVC is missing.
        checks.reverse()
    for name, bad in checks:
        one = conditions.get(name)
        if one and one['status'] == bad:
            return _text(vm['kind'], vm['metadata']['name'], one)
    status = vm.get('status') or {}
    printable = status.get('printableStatus') or ''
    if printable.startswith('Error') or printable in (
            'CrashLoopBackOff', 'ErrImagePull', 'ImagePullBackOff'):
        message = (status.get('startFailure') or {}).get('message') or ''
        return (f'VirtualMachine {vm["metadata"]["name"]}: {printable}'
                + (f': {message}' if message else ''))
    return ''


# Each returns None if the step is done, else text, '' without a reason.

def _vm_problem(vm):
    if vm is None:
        return ''
    problem = vm_problem(vm)
    if problem:
        return problem
    return None if (vm.get('status') or {}).get('printableStatus') else ''


def _volumes_problem(vm, data_volumes):
    pending = [name for name in volumes.template_names(vm)
               if _phase(data_volumes.get(name)) not in _FILLED]
    if not pending:
        return None
    for name in pending:
        one = data_volumes.get(name)
        problem = one and _volume_problem(one)
        if problem:
            return problem
    # KubeVirt's word for a VM whose volume has failed.
    printable = (vm.get('status') or {}).get('printableStatus')
    if printable == 'DataVolumeError':
        return f'VirtualMachine {vm["metadata"]["name"]}: {printable}'
    return ''


def _phase(data_volume):
    return ((data_volume or {}).get('status') or {}).get('phase')


def _volume_problem(data_volume):
    conditions = _conditions(data_volume)
    for name in 'Running', 'Bound':
        one = conditions.get(name)
        if (one and one['status'] == 'False'
                and (one.get('reason') or '') not in _PROGRESS):
            return _text('DataVolume', data_volume['metadata']['name'], one)
    if _phase(data_volume) == 'Failed':
        return f'DataVolume {data_volume["metadata"]["name"]}: Failed'
    return ''


def _bmc_problem(bmc):
    if bmc is None:
        return ''
    one = _conditions(bmc).get('Ready')
    if one is None or (one.get('observedGeneration')
                       != bmc['metadata'].get('generation')):
        return ''
    if one['status'] == 'True':
        return None
    return _text('VirtualMachineBMC', bmc['metadata']['name'], one)


def _conditions(obj):
    return {one['type']: one for one in
            (obj.get('status') or {}).get('conditions') or ()}


def _text(kind, name, condition) -> str:
    words = [word for word in (condition.get('reason'),
                               condition.get('message')) if word]
    return f'{kind} {name}: {": ".join(words)}'
