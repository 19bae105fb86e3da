# SPDX-License-Identifier: Apache-2.0
"""Admission of VirtualMachines.

Source: vm-mutator.go, vms-admitter.go (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt.admission import network
from kubevirt_sandbox.kubevirt.admission import resources
from kubevirt_sandbox.kubevirt.admission import spec
from kubevirt_sandbox.kubevirt.admission import volumes
from kubevirt_sandbox.kubevirt import defaults
from kubevirt_sandbox.kubevirt import gojson
from kubevirt_sandbox.kubevirt import instancetypes
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt.schema import machine

_MUTATOR = 'virtualmachines-mutator'
_VALIDATOR = 'virtualmachine-validator'
_MATCHERS = frozenset(('instancetype', 'preference'))
_STRATEGIES = ('Halted', 'Manual', 'Always', 'RerunOnFailure', 'Once')


class Admission:
    """The webhooks of VirtualMachines.

    :param config: a :class:`config.ClusterConfig`.
    """

    def __init__(self, config):
        self._config = config
        #: {key of a VM: (spec that passed, configuration at that time)}
        self._passed = {}

    def _has_passed(self, vm, spec):
        """Tell whether a spec passed before, with today's configuration."""
        passed, state = self._passed.get(paths.key(vm), (None, None))
        return passed == spec and state is self._config.state

    @staticmethod
    def _is_validated(request):
        """Tell whether virt-api validates a request: not of the status, and
        not of VMs being deleted.
        """
        return (request.operation != 'DELETE' and not request.subresource
                and 'deletionTimestamp' not in request.new['metadata'])

    def mutate(self, request):
        """Fill in what is missing.

        :raises: ApiError 400 for what Go cannot decode, 422 for what has
            not the shape of a VM.
        """
        if not self._is_validated(request):
            return
        vm = request.new
        if request.operation == 'UPDATE' and self._has_passed(
                vm, vm.get('spec')):
            # Most writes are of metadata: the result would be the same.
            vm['spec'] = self._passed[paths.key(vm)][0]
            return
        template = paths.at(vm, 'spec', 'template')
        if isinstance(template, dict) and template.get('spec') is None:
            # what Go makes of a template without a spec
            template['spec'] = {'domain': {'devices': {}}}
        try:
            vm['spec'] = gojson.rewrite(machine.VM_SPEC, vm.get('spec'),
                                        'spec')
        except gojson.DecodeError as error:
            raise causes.bad(_MUTATOR, error)
        causes.check_schema(_MUTATOR, machine.VM, vm, request.old)
        causes.refuse(_MUTATOR, [*instancetypes.check_matchers(vm)])
        defaults.fill_vm(vm, self._config, request.operation == 'CREATE')

    def validate(self, request):
        """Refuse what cannot be.

        :raises: ApiError 422
        """
        if not self._is_validated(request):
            if request.operation == 'DELETE':
                self._passed.pop(paths.key(request.old), None)
            return
        vm_spec = request.new['spec']
        trusted = not request.user
        if request.operation == 'UPDATE' and self._has_passed(
                request.new, vm_spec):
            causes.refuse(_VALIDATOR, [*self._check_metadata(
                vm_spec['template'], trusted)])
        else:
            self._check(request, trusted)
        if vm_spec.get('running') is not None:
            request.warnings.append('spec.running is deprecated, please use '
                                    'spec.runStrategy instead.')
        if not vm_spec.keys() & _MATCHERS:
            self._passed[paths.key(request.new)] = (vm_spec,
                                                    self._config.state)

    @staticmethod
    def _check_metadata(template, trusted):
        return spec.check_metadata('spec.template.metadata',
                                   template.get('metadata'), trusted)

    def _check(self, request, trusted):
        passed, state = self._passed.get(paths.key(request.new), (None, None))
        template = request.new['spec']['template']
        if (passed and request.operation == 'UPDATE'
                and state is self._config.state
                and template['spec'] == passed['template']['spec']
                and not request.new['spec'].keys() & _MATCHERS):
            # The machine is the same: only the VM around it has changed.
            causes.refuse(_VALIDATOR, [
                *self._check_metadata(template, trusted),
                *volumes.check_templates('spec', request.new['spec']),
                *self._check_strategy(request.new['spec'])])
            return
        vm_spec = json_copy.copy(request.new['spec'])
        vm = {**request.new, 'spec': vm_spec}
        template = vm_spec['template']
        causes.refuse(_VALIDATOR, instancetypes.check(request.store, vm))
        try:
            defaults.fill_spec(template['spec'], self._config)
        except defaults.DefaultsError as error:
            raise causes.bad(_VALIDATOR, error)
        if request.operation == 'CREATE':
            causes.refuse(_VALIDATOR,
                          [*network.check_new('spec', template['spec'])])
        causes.refuse(_VALIDATOR, [
            *self._check_metadata(template, trusted),
            *spec.check('spec.template.spec', template['spec'],
                        self._config),
            *volumes.check_templates('spec', vm_spec),
            *self._check_strategy(vm_spec),
            *resources.check_live_update('spec.template.spec',
                                         template['spec'], self._config)])

    @staticmethod
    def _check_strategy(vm_spec):
        running = vm_spec.get('running')
        strategy = vm_spec.get('runStrategy')
        if running is not None and strategy is not None:
            yield causes.Cause(
                'Running and RunStrategy are mutually exclusive. Note that '
                'Running is deprecated, please use RunStrategy instead',
                'spec.running')
        if running is None and strategy is None:
            yield causes.Cause('RunStrategy must be specified', 'spec.running')
        if strategy is not None and strategy not in _STRATEGIES:
            yield causes.Cause(f'Invalid RunStrategy ({strategy})',
                               'spec.runStrategy')
