# SPDX-License-Identifier: Apache-2.0
"""Whether a node's objects are ready, and what keeps them from it.

Reasons are those of KubeVirt, CDI, the scheduler and the operator: they are
in the conditions of the objects.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import enum
import itertools
import typing

from sushy_kubevirt.cluster.objects import volumes

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects


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

    :param problem: what keeps it from the next step; '' if nothing is known
        but that it takes time
    """

    done: tuple[Step, ...] = ()
    problem: str = ''

    @property
    def ready(self) -> bool:
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


def of_node(vm: objects.VirtualMachine | None,
            data_volumes: abc.Mapping[str, objects.DataVolume | None],
            bmc: objects.VirtualMachineBMC | None) -> State:
    """Tell how far a node is.

    :param data_volumes: by name
    """
    problems = {Step.VM: _vm_problem(vm),
                Step.VOLUMES: '' if vm is None
                else _volumes_problem(vm, data_volumes),
                Step.BMC: _bmc_problem(bmc)}
    return State(
        tuple(itertools.takewhile(
            lambda step: problems[step] is None, problems)),
        next(filter(None, problems.values()), ''))


def lasts(problem: str) -> bool:
    """Return whether a problem does not pass by itself."""
    return _PASSING not in problem and any(
        part in problem for part in _LASTING)


def pod_problem(pod: objects.Json) -> str:
    """Say why a pod has no node, in the scheduler's words.

    :returns: '' if it has one, or the scheduler has not seen it
    """
    condition = conditions(pod).get('PodScheduled')
    if condition is None or condition['status'] != 'False':
        return ''
    return _text('Pod', pod['metadata']['name'], condition)


def vm_problem(vm: objects.VirtualMachine) -> str:
    """Say why a VM fails, in KubeVirt's or the scheduler's words.

    :returns: '' if it does not
    """
    by_type = conditions(vm)
    checks = [('Failure', 'True'), ('PodScheduled', 'False'),
              ('Synchronized', 'False')]
    if by_type.get('Synchronized', {}).get('reason') == 'FailedPvcNotFound':
        # KubeVirt also calls a VM unschedulable whose PVC is missing.
        checks.reverse()
    for name, bad in checks:
        condition = by_type.get(name)
        if condition and condition['status'] == bad:
            return _text('VirtualMachine', vm['metadata']['name'], condition)
    status = vm.get('status') or {}
    printable = status.get('printableStatus') or ''
    if printable.startswith('Error') or printable in (
            'CrashLoopBackOff', 'ErrImagePull', 'ImagePullBackOff'):
        message = (status.get('startFailure') or {}).get('message') or ''
        return (f'VirtualMachine {vm["metadata"]["name"]}: {printable}'
                + (f': {message}' if message else ''))
    return ''


# Each returns None if the step is done, else text, '' without a reason.

def _vm_problem(vm: objects.VirtualMachine | None) -> str | None:
    if vm is None:
        return ''
    problem = vm_problem(vm)
    if problem:
        return problem
    return None if (vm.get('status') or {}).get('printableStatus') else ''


def _volumes_problem(vm: objects.VirtualMachine,
                     data_volumes: abc.Mapping[str, objects.DataVolume | None]
                     ) -> str | None:
    pending = [name for name in volumes.template_names(vm)
               if _phase(data_volumes.get(name)) not in _FILLED]
    if not pending:
        return None
    for name in pending:
        data_volume = data_volumes.get(name)
        if data_volume and (problem := _volume_problem(data_volume)):
            return problem
    # KubeVirt's word for a VM whose volume has failed.
    printable = (vm.get('status') or {}).get('printableStatus')
    if printable == 'DataVolumeError':
        return f'VirtualMachine {vm["metadata"]["name"]}: {printable}'
    return ''


def _phase(data_volume: objects.DataVolume | None) -> str | None:
    return ((data_volume or {}).get('status') or {}).get('phase')


def _volume_problem(data_volume: objects.DataVolume) -> str:
    by_type = conditions(data_volume)
    for name in 'Running', 'Bound':
        condition = by_type.get(name)
        if (condition and condition['status'] == 'False'
                and (condition.get('reason') or '') not in _PROGRESS):
            return _text('DataVolume', data_volume['metadata']['name'],
                         condition)
    if _phase(data_volume) == 'Failed':
        return f'DataVolume {data_volume["metadata"]["name"]}: Failed'
    return ''


def _bmc_problem(bmc: objects.VirtualMachineBMC | None) -> str | None:
    if bmc is None:
        return ''
    condition = conditions(bmc).get('Ready')
    if condition is None or (condition.get('observedGeneration')
                             != bmc['metadata'].get('generation')):
        return ''
    if condition['status'] == 'True':
        return None
    return _text('VirtualMachineBMC', bmc['metadata']['name'], condition)


def conditions(
        obj: abc.Mapping[str, typing.Any]) -> dict[str, objects.Condition]:
    """Return an object's conditions by type."""
    return {condition['type']: condition for condition in
            (obj.get('status') or {}).get('conditions') or ()}


def _text(kind: str, name: str, condition: objects.Condition) -> str:
    words = [word for word in (condition.get('reason'),
                               condition.get('message')) if word]
    return f'{kind} {name}: {": ".join(words)}'
