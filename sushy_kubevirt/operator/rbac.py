# SPDX-License-Identifier: Apache-2.0
"""ServiceAccount, Role and RoleBinding of a BMC's pod.

The Role is in the VM's namespace, and its rules name the VM and its objects.
These rules cannot name objects:

- ``create`` and ``list`` of Events: the system's log, whose entries have
  generated names. An admission policy limits ``create`` to Events about the
  VM.
- ``create`` of UploadTokenRequests, where images are uploaded: CDI reads the
  claim's name from the body. A token is valid only for a claim that waits for
  an upload.

``create`` of DataVolumes, Secrets and ConfigMaps *does* name them: the API
server checks the name when an object is created by server-side apply
(apiserver/pkg/endpoints/handlers/patch.go), which the pod therefore uses.

RBAC does not restrict the content of an object. ``create`` and ``get`` of a
Secret would give access to the token of any account of the namespace, and
``patch`` of a VM would give its guest any volume. The policies in
``etc/kubernetes/base/admission.yaml`` prevent that, for accounts with the
suffix of BMCs' names.

The Secret with the BMC's `state` is created by the operator, which sets its
type. KubeVirt's own ClusterRole lets all users read its feature gates.
"""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.bmc import state_secret
from sushy_kubevirt.kube import objects
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import spec

RBAC = 'rbac.authorization.k8s.io'

_DEVICES = tuple(device.id for device in model.ALL_DEVICES)


def account(bmc: spec.Bmc) -> objects.Json:
    """Make the ServiceAccount of a BMC's pod."""
    return {'apiVersion': 'v1', 'kind': 'ServiceAccount',
            'metadata': naming.metadata(bmc, naming.base(bmc.name)),
            # The pod's own setting mounts the token.
            'automountServiceAccountToken': False}


def role(bmc: spec.Bmc, uploads: bool = False) -> objects.Json:
    """Make the Role, in the VM's namespace.

    :param uploads: whether it can upload images
    """
    return {'apiVersion': RBAC + '/v1', 'kind': 'Role',
            'metadata': _metadata(bmc), 'rules': rules(bmc, uploads)}


def binding(bmc: spec.Bmc,
            accounts: abc.Sequence[str] | None = None) -> objects.Json:
    """Make the RoleBinding, in the VM's namespace.

    :param accounts: names of ServiceAccounts in the BMC's namespace; default:
        that of the BMC's own pod
    """
    metadata = _metadata(bmc)
    return {'apiVersion': RBAC + '/v1', 'kind': 'RoleBinding',
            'metadata': metadata,
            'roleRef': {'apiGroup': RBAC, 'kind': 'Role',
                        'name': metadata['name']},
            'subjects': [{'kind': 'ServiceAccount', 'name': name,
                          'namespace': bmc.namespace}
                         for name in accounts or [naming.base(bmc.name)]]}


def state(vm: objects.Object) -> objects.Json:
    """Make the Secret with the settings and subscriptions of clients.

    :param vm: owns the Secret
    """
    metadata = vm['metadata']
    return {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
            'metadata': {
                'name': state_secret.name(metadata['name']),
                'namespace': metadata['namespace'],
                'labels': {naming.MANAGED_BY: naming.OPERATOR},
                'ownerReferences': [{
                    'apiVersion': vm['apiVersion'], 'kind': vm['kind'],
                    'name': metadata['name'], 'uid': metadata['uid']}]}}


def rules(bmc: spec.Bmc, uploads: bool = False) -> list[objects.Json]:
    """Make the rules of the Role.

    :param uploads: whether it can upload images
    """
    vms = [bmc.vm.name]
    return rules_for(vms, vms if bmc.redfish.enabled else [],
                     vms if bmc.redfish.display else [], uploads,
                     authorities(bmc))


def authorities(bmc: spec.Bmc) -> list[str]:
    """List the names of ConfigMaps with CA certificates, in the namespace of
    the VM, that the pod of a BMC reads."""
    name = bmc.media.ca_config_map
    return [name] if name and bmc.redfish.enabled and (
        bmc.vm.namespace == bmc.namespace) else []


def rules_for(vms: list[str], redfish: list[str], displays: list[str],
              uploads: bool = False,
              authorities: abc.Sequence[str] = ()) -> list[objects.Json]:
    """Make the rules of a Role for some VMs.

    :param vms: their names
    :param redfish: names of those whose BMCs have Redfish
    :param displays: names of those whose display clients can see
    :param uploads: whether these can upload images
    :param authorities: names of ConfigMaps with CA certificates of users
    """
    given = [
        # Inventory and state; boot order, firmware, run strategy,
        # annotations.
        rule('kubevirt.io', ['virtualmachines'],
             ['get', 'list', 'watch', 'patch'], vms),
        # ``delete``: to start a VM with run strategy Once again. ``patch``:
        # the annotation that makes the VM's observedGeneration catch up.
        rule('kubevirt.io', ['virtualmachineinstances'],
             ['get', 'list', 'watch', 'patch', 'delete'], vms),
        # To cancel a start that has not begun; to end the delay after a
        # failed one.
        rule('kubevirt.io', ['virtualmachines/status'], ['patch'], vms),
        # CPU and memory of a VM with an instance type, while it is off.
        rule('subresources.kubevirt.io', ['virtualmachines/expand-spec'],
             ['get'], vms),
        # Power.
        rule('subresources.kubevirt.io', [
            'virtualmachines/start', 'virtualmachines/stop',
            'virtualmachines/restart', 'virtualmachineinstances/pause',
            'virtualmachineinstances/unpause'], ['update'], vms),
        # The serial console.
        rule('subresources.kubevirt.io', ['virtualmachineinstances/console'],
             ['get'], vms),
        rule('', ['secrets'], ['get', 'list', 'watch', 'patch'],
             [state_secret.name(vm) for vm in vms]),
        rule('', ['events'], ['create', 'list']),
    ]
    if displays:
        given.append(rule('subresources.kubevirt.io',
                          ['virtualmachineinstances/vnc'], ['get'], displays))
    if redfish:
        given += _media(redfish)
        if uploads:
            given.append(rule('upload.cdi.kubevirt.io',
                              ['uploadtokenrequests'], ['create']))
    if authorities:
        given.append(rule('', ['configmaps'], ['get'], [*authorities]))
    return given


def _media(vms: list[str]) -> list[objects.Json]:
    slots = [slot for vm in vms for device in _DEVICES
             for slot in media_annotation.slots(vm, device)]
    return [
        rule(
            'cdi.kubevirt.io',
            ['datavolumes'],
            ['create', 'get', 'list', 'watch', 'patch', 'delete'],
            slots,
        ),
        # To see whether the claim of the previous medium is deleted.
        rule('', ['persistentvolumeclaims'], ['get'], slots),
        # Credentials for an image's server. ``patch`` includes reading: the
        # answer is the whole object.
        rule('', ['secrets'], ['create', 'get', 'patch'], slots),
        # Certificates of images' servers.
        rule(
            '',
            ['configmaps'],
            ['create', 'get', 'patch', 'delete'],
            [media_annotation.ca_config_map(vm, device)
             for vm in vms for device in _DEVICES],
        ),
    ]


def _metadata(bmc: spec.Bmc) -> objects.ObjectMeta:
    return naming.metadata(
        bmc, naming.access(bmc.name, bmc.namespace, bmc.vm.namespace),
        bmc.vm.namespace)


def rule(group: str, resources: list[str], verbs: list[str],
         names: list[str] | None = None) -> objects.Json:
    """Make a rule.

    :param names: of the only objects; None for all
    """
    body: objects.Json = {
        'apiGroups': [group], 'resources': resources, 'verbs': verbs}
    if names:
        body['resourceNames'] = names
    return body
