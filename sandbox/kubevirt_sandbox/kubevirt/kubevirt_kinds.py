# SPDX-License-Identifier: Apache-2.0
"""The kinds of KubeVirt, as its CRDs define them.

Source: pkg/virt-operator/resource/generate/components/crds.go
(KubeVirt 1.9).
"""

import dataclasses

from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.kubevirt.admission import kubevirt
from kubevirt_sandbox.kubevirt.admission import vm
from kubevirt_sandbox.kubevirt.admission import vmi
from kubevirt_sandbox.kubevirt import instancetypes
from kubevirt_sandbox.kubevirt.schema import machine

GROUP, VERSION, OLDER_VERSION = 'kubevirt.io', 'v1', 'v1alpha3'

_AGE = kinds.Column('Age', 'date', '.metadata.creationTimestamp')


def _condition(name, kind, priority=0):
    return kinds.Column(
        name, 'string', f".status.conditions[?(@.type=='{kind}')].status",
        priority)


@dataclasses.dataclass(frozen=True)
class Kinds:
    """The kinds of one cluster; their hooks know its configuration."""

    vm: kinds.Kind
    vmi: kinds.Kind
    kubevirt: kinds.Kind
    others: tuple[kinds.Kind, ...]

    def __iter__(self):
        return iter((self.vm, self.vmi, self.kubevirt, *self.others))


def older(kind):
    """Return a kind in the older version that KubeVirt serves."""
    return dataclasses.replace(
        kind, version=OLDER_VERSION, crd=False, stored_as=kind,
        to_stored=lambda obj: {**obj, 'apiVersion': kind.api_version},
        from_stored=lambda obj: {
            **obj, 'apiVersion': f'{GROUP}/{OLDER_VERSION}'})


def build(config):
    """Make the kinds.

    :param config: a :class:`config.ClusterConfig`.
    """
    vms, vmis = vm.Admission(config), vmi.Admission(config)
    return Kinds(
        vm=kinds.Kind(
            GROUP, VERSION, 'VirtualMachine', 'virtualmachines',
            'virtualmachine', ('vm', 'vms'), ('all',), schema=machine.VM,
            columns=(_AGE, kinds.Column(
                'Status', 'string', '.status.printableStatus',
                description='Human Readable Status'),
                _condition('Ready', 'Ready')),
            status=True, crd=True, mutate=vms.mutate,
            validate=vms.validate),
        # status is not a subresource; virt-api refuses writes of users.
        vmi=kinds.Kind(
            GROUP, VERSION, 'VirtualMachineInstance',
            'virtualmachineinstances', 'virtualmachineinstance',
            ('vmi', 'vmis'), ('all',), schema=machine.VMI,
            columns=(
                _AGE, kinds.Column('Phase', 'string', '.status.phase'),
                kinds.Column('IP', 'string',
                             '.status.interfaces[0].ipAddress'),
                kinds.Column('NodeName', 'string', '.status.nodeName'),
                _condition('Ready', 'Ready'),
                _condition('Live-Migratable', 'LiveMigratable', 1),
                _condition('Paused', 'Paused', 1)),
            crd=True, mutate=vmis.mutate, validate=vmis.validate),
        kubevirt=kinds.Kind(
            GROUP, VERSION, 'KubeVirt', 'kubevirts', 'kubevirt',
            ('kv', 'kvs'), ('all',), schema=machine.KUBEVIRT,
            columns=(_AGE, kinds.Column('Phase', 'string', '.status.phase')),
            status=True, crd=True, validate=kubevirt.validate),
        others=(
            *instancetypes.KINDS,
            _listed('VirtualMachineInstanceMigration', 'vmim', 'vmims'),
            _listed('VirtualMachineInstanceReplicaSet', 'vmirs', 'vmirss')))


def _listed(kind, *short_names):
    """Make a kind without a controller."""
    singular = kind.lower()
    return kinds.Kind(GROUP, VERSION, kind, f'{singular}s', singular,
                      short_names, ('all',), columns=(
                          _AGE, kinds.Column('Phase', 'string',
                                             '.status.phase')),
                      status=True, crd=True)
