# SPDX-License-Identifier: Apache-2.0
"""What the pod of a BMC may do: its account, and rights that name its VM.

The Role lies where the VM is. What cannot be named, and why it is given all
the same:

- ``create``, ``list`` and ``delete`` of Events: the log of a system; nobody
  knows their names beforehand.
- ``create`` of UploadTokenRequests, where images are uploaded: CDI takes the
  claim's name from the body. A token is good for a claim that waits for an
  upload only.

``create`` of DataVolumes, Secrets and ConfigMaps *is* named. An API server
asks with the name when the object is made by server-side apply
(apiserver/pkg/endpoints/handlers/patch.go), and so the pod makes them.

Rights cannot say what is written into an object. Whoever may create a Secret
and read it could have the token of any account of the namespace written into
it, and whoever may patch a VM could give its guest any volume. That is what
the policies in ``etc/kubernetes/base/admission.yaml`` are for: they are about
accounts whose names end as those of BMCs do.

The Secret with settings, the `state`, is made by the operator, so that its
type is settled. The gates of KubeVirt everybody may read by KubeVirt's own
ClusterRole.
"""

from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.operator import naming
from sushy_kubevirt.redfish.services import state_secret as state_

RBAC = 'rbac.authorization.k8s.io'

_DEVICES = (model.CD.id, model.USB_STICK.id, model.HTTP_BOOT.id)


def account(bmc):
    """The ServiceAccount of a BMC's pod.

    :param bmc: a `spec.Bmc`
    """
    return {'apiVersion': 'v1', 'kind': 'ServiceAccount',
            'metadata': naming.metadata(bmc, naming.base(bmc.name)),
            # The pod asks for its token itself.
            'automountServiceAccountToken': False}


def role(bmc, uploads=False):
    """The Role, in the VM's namespace.

    :param bmc: a `spec.Bmc`
    :param uploads: whether it can upload images
    """
    return {'apiVersion': RBAC + '/v1', 'kind': 'Role',
            'metadata': _metadata(bmc), 'rules': rules(bmc, uploads)}


def binding(bmc):
    """The RoleBinding, in the VM's namespace.

    :param bmc: a `spec.Bmc`
    """
    metadata = _metadata(bmc)
    return {'apiVersion': RBAC + '/v1', 'kind': 'RoleBinding',
            'metadata': metadata,
            'roleRef': {'apiGroup': RBAC, 'kind': 'Role',
                        'name': metadata['name']},
            'subjects': [{'kind': 'ServiceAccount',
                          'name': naming.base(bmc.name),
                          'namespace': bmc.namespace}]}


def state(vm):
    """The Secret that keeps what clients set about the services.

    :param vm: dict, the VM; the Secret goes with it
    """
    metadata = vm['metadata']
    return {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
            'metadata': {
                'name': metadata['name'] + state_.ENDING,
                'namespace': metadata['namespace'],
                'labels': {naming.MANAGED_BY: naming.OPERATOR},
                'ownerReferences': [{
                    'apiVersion': vm['apiVersion'], 'kind': vm['kind'],
                    'name': metadata['name'], 'uid': metadata['uid']}]}}


def rules(bmc, uploads=False):
    """The rules of the Role.

    :param bmc: a `spec.Bmc`
    :param uploads: whether it can upload images
    :returns: list of dicts
    """
    vm = bmc.vm.name
    given = [
        # Inventory and state; boot order, firmware, run strategy,
        # annotations.
        _rule('kubevirt.io', ['virtualmachines'],
              ['get', 'list', 'watch', 'patch'], [vm]),
        # Deleted to start one with run strategy Once again.
        _rule('kubevirt.io', ['virtualmachineinstances'],
              ['get', 'list', 'watch', 'delete'], [vm]),
        # To call off a start that has not begun.
        _rule('kubevirt.io', ['virtualmachines/status'], ['patch'], [vm]),
        # Sizes of a VM with an instance type, while it is off.
        _rule('subresources.kubevirt.io', ['virtualmachines/expand-spec'],
              ['get'], [vm]),
        # Power.
        _rule('subresources.kubevirt.io', [
            'virtualmachines/start', 'virtualmachines/stop',
            'virtualmachines/restart', 'virtualmachineinstances/pause',
            'virtualmachineinstances/unpause'], ['update'], [vm]),
        _rule('', ['secrets'], ['get', 'patch'], [vm + state_.ENDING]),
        _rule('', ['events'], ['create', 'list', 'delete']),
    ]
    if bmc.redfish.enabled:
        given += _media(vm)
        if uploads:
            given.append(_rule('upload.cdi.kubevirt.io',
                               ['uploadtokenrequests'], ['create']))
    return given


def _media(vm):
    slots = [slot for device in _DEVICES
             for slot in media_annotation.slots(vm, device)]
    return [
        _rule(
            'cdi.kubevirt.io',
            ['datavolumes'],
            ['create', 'get', 'list', 'watch', 'patch', 'delete'],
            slots,
        ),
        # Whether the claim of the medium before is gone.
        _rule('', ['persistentvolumeclaims'], ['get'], slots),
        # User name and password of an image's server. Whoever may patch may
        # read: the answer is the whole object.
        _rule('', ['secrets'], ['create', 'get', 'patch'], slots),
        # Certificates of images' servers.
        _rule(
            '',
            ['configmaps'],
            ['create', 'get', 'patch', 'delete'],
            [media_annotation.authorities(vm, device) for device in _DEVICES],
        ),
    ]


def _metadata(bmc):
    return naming.metadata(
        bmc, naming.access(bmc.name, bmc.namespace, bmc.vm.namespace),
        bmc.vm.namespace)


def _rule(group, resources, verbs, names=None):
    rule = {'apiGroups': [group], 'resources': resources, 'verbs': verbs}
    if names:
        rule['resourceNames'] = names
    return rule
