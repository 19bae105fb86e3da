# SPDX-License-Identifier: Apache-2.0
"""Admission of VirtualMachineInstances.

Source: vmi-mutator.go, vmi-create-admitter.go, vmi-update-admitter.go,
serviceaccounts.go (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import auth
from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt.admission import devices
from kubevirt_sandbox.kubevirt.admission import hotplug
from kubevirt_sandbox.kubevirt.admission import network
from kubevirt_sandbox.kubevirt.admission import resources
from kubevirt_sandbox.kubevirt.admission import spec
from kubevirt_sandbox.kubevirt.admission import volumes
from kubevirt_sandbox.kubevirt import config
from kubevirt_sandbox.kubevirt import defaults
from kubevirt_sandbox.kubevirt import gojson
from kubevirt_sandbox.kubevirt.schema import machine

_MUTATOR = 'virtualmachineinstances-mutator'
_CREATE = 'virtualmachineinstances-create-validator'
_UPDATE = 'virtualmachineinstances-update-validator'

# Accounts of KubeVirt's components. virt-handler's is absent, as it is
# restricted to the VMIs of its own node.
_COMPONENTS = frozenset(
    auth.account_name(config.NAMESPACE, 'kubevirt-' + name)
    for name in ('apiserver', 'controller', 'synchronization-controller'))


class Admission:
    """The webhooks of VirtualMachineInstances.

    :param cluster_config: a :class:`config.ClusterConfig`.
    """

    def __init__(self, cluster_config):
        self._config = cluster_config

    def mutate(self, request):
        """Fill in what is missing; keep the status from strangers.

        :raises: ApiError 400 for what Go cannot decode, 422 for what has
            not the shape of a VMI.
        """
        if request.operation == 'DELETE':
            return
        vmi = request.new
        if request.operation == 'UPDATE':
            if not _is_component(request.user):
                vmi['status'] = request.old.get('status') or {}
            if vmi.get('spec') == request.old.get('spec'):
                return
        try:
            vmi['spec'] = gojson.rewrite(machine.VMI_SPEC, vmi.get('spec'),
                                         'spec')
        except gojson.DecodeError as error:
            raise causes.bad(_MUTATOR, error)
        causes.check_schema(_MUTATOR, machine.VMI, vmi)
        if request.operation == 'CREATE':
            try:
                defaults.fill_vmi(vmi, self._config)
            except defaults.DefaultsError as error:
                raise causes.bad(_MUTATOR, error)

    def validate(self, request):
        """Refuse what cannot be, and changes of what must not change.

        :raises: ApiError 422
        """
        if request.operation == 'CREATE':
            self._check_new(request)
        elif request.operation == 'UPDATE':
            self._check_change(request)

    def _check_new(self, request):
        vmi_spec = request.new['spec']
        causes.refuse(_CREATE, [
            *network.check_new('spec', vmi_spec),
            *spec.check('spec', vmi_spec, self._config),
            *volumes.check_used('spec', vmi_spec),
            *resources.check_asked('spec', vmi_spec),
            *spec.check_metadata('metadata', request.new['metadata'],
                                 _is_component(request.user)),
            *devices.check_architecture('spec', vmi_spec)])

    def _check_change(self, request):
        old, new = request.old, request.new
        if new['spec'] != old['spec']:
            if not _is_component(request.user):
                causes.refuse(_UPDATE, [causes.Cause(
                    'update of VMI object is restricted',
                    reason=causes.NOT_SUPPORTED)])
            causes.refuse(_UPDATE, hotplug.check(old, new, self._config))
        if not _is_component(request.user) and spec.reserved_labels(
                new['metadata']) != spec.reserved_labels(old['metadata']):
            causes.refuse(_UPDATE, [causes.Cause(
                'modification of the following reserved kubevirt.io/ labels '
                'on a VMI object is prohibited', reason=causes.NOT_SUPPORTED)])


def _is_component(user):
    """Tell whether a request comes from a component of KubeVirt.

    :param user: its name; the sandbox's own controllers have none.
    """
    return not user or user in _COMPONENTS
