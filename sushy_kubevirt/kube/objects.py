# SPDX-License-Identifier: Apache-2.0
"""Types of the objects that the Kubernetes, KubeVirt and CDI APIs exchange.

The typed dictionaries are for annotations alone. They list the fields that
this project reads or writes, nothing more. No field is required: the API
leaves out what is empty.

Source: ``types.go`` of k8s.io/apimachinery's ``meta/v1``, KubeVirt's
``api/core/v1`` (1.6) and CDI's ``core/v1beta1`` (1.63).
"""

from __future__ import annotations

from collections import abc
import typing

#: An object of any kind, which is only read.
AnyObject: typing.TypeAlias = abc.Mapping[str, typing.Any]

#: Any of the types below: what a resource's objects are.
ObjectT = typing.TypeVar('ObjectT', bound=AnyObject)

#: An object without a class here, or a part of an object.
Json: typing.TypeAlias = dict[str, typing.Any]

#: Operations of RFC 6902, in the order of their application.
JsonPatch: typing.TypeAlias = list[Json]


class ObjectKey(typing.NamedTuple):
    """Identifies an object within its kind.

    The namespace is '' for objects outside of namespaces.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f'{self.namespace}/{self.name}'


if typing.TYPE_CHECKING:
    # Not made when a BMC starts, where a class of twelve fields takes 0.1 ms.

    class OwnerReference(typing.TypedDict, total=False):
        """``metadata.ownerReferences[]``."""

        apiVersion: str
        kind: str
        name: str
        uid: str
        controller: bool
        blockOwnerDeletion: bool

    class ObjectMeta(typing.TypedDict, total=False):
        """``metadata``; times are RFC 3339 in UTC."""

        name: str
        namespace: str
        uid: str
        resourceVersion: str
        generation: int
        creationTimestamp: str
        deletionTimestamp: str
        labels: dict[str, str]
        annotations: dict[str, str]
        finalizers: list[str]
        ownerReferences: list[OwnerReference]
        managedFields: list[Json]

    class Condition(typing.TypedDict, total=False):
        """``status.conditions[]``; the status is ``True``, ``False`` or
        ``Unknown``."""

        type: str
        status: str
        reason: str
        message: str
        lastTransitionTime: str
        observedGeneration: int

    class Object(typing.TypedDict, total=False):
        """What objects of all kinds have."""

        apiVersion: str
        kind: str
        metadata: ObjectMeta

    class Disk(typing.TypedDict, total=False):
        """``domain.devices.disks[]``; one of ``disk``, ``cdrom``, ``lun``."""

        name: str
        bootOrder: int
        serial: str
        disk: Json
        cdrom: Json
        floppy: Json
        lun: Json

    class Interface(typing.TypedDict, total=False):
        """``domain.devices.interfaces[]``."""

        name: str
        model: str
        macAddress: str
        bootOrder: int
        state: str
        passtBinding: Json

    class Devices(typing.TypedDict, total=False):
        """``domain.devices``."""

        disks: list[Disk]
        interfaces: list[Interface]
        filesystems: list[Json]
        tpm: Json
        disableHotplug: bool
        autoattachPodInterface: bool
        autoattachSerialConsole: bool
        autoattachGraphicsDevice: bool
        logSerialConsole: bool

    class Firmware(typing.TypedDict, total=False):
        """``domain.firmware``."""

        uuid: str
        serial: str
        bootloader: Json

    class Domain(typing.TypedDict, total=False):
        """``spec.domain`` of a VMI."""

        devices: Devices
        firmware: Firmware
        features: Json
        cpu: Json
        memory: Json
        resources: Json
        machine: Json
        chassis: Json
        launchSecurity: Json
        rebootPolicy: str

    class Volume(typing.TypedDict, total=False):
        """``spec.volumes[]`` of a VMI; one source besides the name."""

        name: str
        dataVolume: Json
        persistentVolumeClaim: Json
        containerDisk: Json
        ephemeral: Json
        emptyDisk: Json
        hostDisk: Json

    class VirtualMachineInstanceSpec(typing.TypedDict, total=False):
        """``spec`` of a VMI, and ``spec.template.spec`` of a VM."""

        architecture: str
        hostname: str
        domain: Domain
        volumes: list[Volume]
        networks: list[Json]
        terminationGracePeriodSeconds: int

    class VirtualMachineInstanceStatus(typing.TypedDict, total=False):
        """``status`` of a VMI."""

        phase: str
        reason: str
        nodeName: str
        conditions: list[Condition]
        interfaces: list[Json]
        volumeStatus: list[Json]
        guestOSInfo: Json
        currentCPUTopology: Json
        machine: Json
        memory: Json
        phaseTransitionTimestamps: list[Json]
        activePods: dict[str, str]          # node by uid

    class VirtualMachineInstance(Object, total=False):
        """KubeVirt's VirtualMachineInstance: a VM that runs."""

        spec: VirtualMachineInstanceSpec
        status: VirtualMachineInstanceStatus

    class VirtualMachineInstanceTemplate(typing.TypedDict, total=False):
        """``spec.template`` of a VM."""

        metadata: ObjectMeta
        spec: VirtualMachineInstanceSpec

    class VirtualMachineSpec(typing.TypedDict, total=False):
        """``spec`` of a VM."""

        running: bool
        runStrategy: str
        template: VirtualMachineInstanceTemplate
        dataVolumeTemplates: list[Json]
        instancetype: Json
        preference: Json
        updateVolumesStrategy: str

    class VirtualMachineStatus(typing.TypedDict, total=False):
        """``status`` of a VM."""

        printableStatus: str
        created: bool
        ready: bool
        conditions: list[Condition]
        stateChangeRequests: list[Json]
        startFailure: Json
        runStrategy: str
        observedGeneration: int

    class VirtualMachine(Object, total=False):
        """KubeVirt's VirtualMachine."""

        spec: VirtualMachineSpec
        status: VirtualMachineStatus

    class DataVolumeStatus(typing.TypedDict, total=False):
        """``status`` of a DataVolume."""

        phase: str
        progress: str
        restartCount: int
        claimName: str
        conditions: list[Condition]

    class DataVolume(Object, total=False):
        """CDI's DataVolume."""

        spec: Json
        status: DataVolumeStatus

    class VirtualMachineBMCStatus(typing.TypedDict, total=False):
        """``status`` of a VirtualMachineBMC."""

        observedGeneration: int
        virtualMachine: str
        conditions: list[Condition]
        bareMetalHost: Json
        authSecret: str
        placement: Json
        serviceIP: str
        clusterIP: str
        loadBalancerIP: str
        bootOverride: Json
        endpoints: Json

    class VirtualMachineBMC(Object, total=False):
        """The operator's VirtualMachineBMC, which `operator.spec` parses."""

        spec: Json
        status: VirtualMachineBMCStatus


def labels_of(obj: AnyObject) -> dict[str, str]:
    """Return ``metadata.labels``; empty if there are none."""
    return obj['metadata'].get('labels') or {}


def annotations_of(obj: AnyObject) -> dict[str, str]:
    """Return ``metadata.annotations``; empty if there are none."""
    return obj['metadata'].get('annotations') or {}


def conditions_of(obj: AnyObject) -> dict[str, Condition]:
    """Return ``status.conditions`` by type."""
    return {condition['type']: condition for condition in (
        obj.get('status') or {}).get('conditions') or ()}


def holds(obj: AnyObject, type_: str) -> bool:
    """Tell whether an object has a condition with status ``True``."""
    condition = conditions_of(obj).get(type_)
    return condition is not None and condition.get('status') == 'True'
