# SPDX-License-Identifier: Apache-2.0
"""start, stop and restart of VirtualMachines.

They change the VM: its run strategy, or the requests in its status that its
controller then carries out.

Source: pkg/virt-api/rest/lifecycle.go (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.kubevirt import conditions
from kubevirt_sandbox.kubevirt import instancetypes
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt import vm_model
from kubevirt_sandbox.kubevirt import vmi_status

_MANAGER = 'virt-api'
_NOT_RUNNING = 'VM is not running'
_RECOVERY_REQUIRED = (
    'VM recovery required: Volume migration failed, leaving some volumes '
    'pointing to non-consistent targets; manual intervention is needed to '
    'reassign them to their original volumes.')


def _details(kind, name):
    return {'name': name, 'group': 'kubevirt.io', 'kind': kind}


def not_found(kind, name):
    """Return virt-api's 404 error; ``kind`` in lower case and singular."""
    return errors.ApiError(404, 'NotFound',
                           f'{kind}.kubevirt.io "{name}" not found',
                           _details(kind, name))


def conflict(kind, name, why):
    """Return virt-api's 409 error."""
    return errors.ApiError(
        409, 'Conflict', f'Operation cannot be fulfilled on {kind}.'
        f'kubevirt.io "{name}": {why}', _details(kind, name))


def option(body, name, *types):
    """Return an option in the body of a call.

    :param types: the types that its value may have.
    :returns: its value, or None.
    :raises: ApiError 400
    """
    value = body.get(name)
    if value is None or (isinstance(value, types) and (
            bool in types or not isinstance(value, bool))):
        return value
    raise errors.bad_request(
        'Can not unmarshal Request body to struct, error: json: cannot '
        f'unmarshal {_json_type(value)} into Go struct field .{name} of '
        f'type {types[0].__name__}')


def _json_type(value):
    if isinstance(value, bool):
        return 'bool'
    if isinstance(value, (int, float)):
        return 'number' if isinstance(value, int) else f'number {value}'
    return {str: 'string', list: 'array'}.get(type(value), 'object')


def dry(body):
    """Tell whether a call is a dry run."""
    return 'All' in (option(body, 'dryRun', list) or ())


class VmSubresources:
    """The handlers of subresources of VirtualMachines.

    :param kinds: the :class:`kubevirt_kinds.Kinds` of the cluster.
    """

    def __init__(self, kinds):
        self._kinds = kinds

    def handlers(self):
        """Return ``{subresource: (method, handler)}``."""
        return {'start': ('PUT', self.start), 'stop': ('PUT', self.stop),
                'restart': ('PUT', self.restart),
                'expand-spec': ('GET', self.expand)}

    def _find(self, request):
        vm = request.store.find(self._kinds.vm, request.namespace,
                                request.name)
        if vm is None:
            raise not_found('virtualmachine', request.name)
        vmi = request.store.find(self._kinds.vmi, request.namespace,
                                 request.name)
        return vm, vmi

    async def start(self, request):
        """Start a VM; 409 if it runs or its strategy does not allow it."""
        vm, vmi = self._find(request)
        if vmi is not None and not vmi_status.is_final(
                vmi) and vmi_status.phase(vmi):
            raise self._conflict(vm, 'VM is already running')
        if conditions.is_true(vm, vm_model.RECOVERY_REQUIRED):
            raise self._conflict(vm, _RECOVERY_REQUIRED)
        body = request.body
        paused = option(body, 'paused', bool)
        data = {'data': {'paused': 'true'}} if paused else {}
        strategy = self._strategy(vm)
        if strategy in (vm_model.ALWAYS, vm_model.ONCE):
            raise self._conflict(vm, f'{strategy} does not support manual '
                                 'start requests')
        if strategy == vm_model.HALTED and not paused:
            self._run(request, vm, True)
            return 202, None
        wanted = [{'action': vm_model.START, **data}]
        if strategy != vm_model.HALTED and vmi is not None:
            if (strategy == vm_model.RERUN
                    and vmi_status.phase(vmi) == vmi_status.FAILED):
                raise self._conflict(vm, 'RerunOnFailure does not support '
                                     'starting VM from failed state')
            if vmi_status.is_final(vmi):
                wanted.insert(0, _stop(vmi))
        self._ask(request, vm, wanted)
        return 202, None

    async def stop(self, request):
        """Shut down a VM; 409 when it does not run."""
        grace = option(request.body, 'gracePeriod', int)
        vm, vmi = self._find(request)
        strategy = self._strategy(vm)
        running = vmi is not None and not vmi_status.is_final(vmi)
        old_grace = vmi and vmi['spec'].get('terminationGracePeriodSeconds')
        if running and grace is not None:
            self._set_grace(request, vmi, grace)
        if strategy in (vm_model.ALWAYS, vm_model.ONCE):
            self._run(request, vm, False)
            return 202, None
        if not running:
            raise self._conflict(vm, _NOT_RUNNING)
        if strategy == vm_model.HALTED and (grace is None or (
                old_grace is not None and grace >= old_grace)):
            raise self._conflict(vm, 'Halted only supports manual stop '
                                 'requests with a shorter graceperiod')
        self._ask(request, vm, [_stop(vmi)])
        return 202, None

    async def restart(self, request):
        """Replace a VM's VMI by a new one; 409 when there is none."""
        grace = option(request.body, 'gracePeriodSeconds', int)
        if grace is not None and grace > 0:
            raise errors.bad_request('For force restart, only gracePeriod=0 '
                                     'is supported for now')
        if grace is not None and grace < 0:
            raise errors.bad_request(
                'gracePeriod has to be greater or equal to 0')
        vm, vmi = self._find(request)
        if conditions.is_true(vm, 'VolumesChange'):
            raise self._conflict(vm, _RECOVERY_REQUIRED)
        strategy = self._strategy(vm)
        if strategy in (vm_model.HALTED, vm_model.ONCE):
            raise self._conflict(vm, f'RunStategy {strategy} does not '
                                 'support manual restart requests')
        if vmi is None:
            raise self._conflict(vm, f'{_NOT_RUNNING}: Halted')
        wanted = [_stop(vmi), {'action': vm_model.START}]
        self._check_free(vm, wanted)
        if grace == 0:
            # 1 is the shortest that leaves no half-dead guest behind
            self._set_grace(request, vmi, 1)
        self._ask(request, vm, wanted)
        return 202, None

    async def expand(self, request):
        """Return the VM with the sizes of its instance type."""
        return 200, instancetypes.expanded(request.store,
                                           self._find(request)[0])

    @staticmethod
    def _conflict(vm, why):
        return conflict('virtualmachine', vm['metadata']['name'], why)

    @staticmethod
    def _strategy(vm):
        try:
            return vm_model.run_strategy(vm)
        except vm_model.BothError as error:
            raise errors.internal_error(error)

    def _write(self, request, kind, change, subresource=''):
        """Write an object as virt-api; a refusal is an internal error."""
        if dry(request.body):
            return
        try:
            request.store.change(kind, request.namespace, request.name,
                                 change, subresource=subresource,
                                 manager=_MANAGER)
        except errors.ApiError as error:
            raise errors.internal_error(error)

    def _run(self, request, vm, run):
        def change(new):
            if vm['spec'].get('runStrategy') is not None:
                new['spec']['runStrategy'] = (
                    vm_model.ALWAYS if run else vm_model.HALTED)
            else:
                new['spec']['running'] = run
        self._write(request, self._kinds.vm, change)

    def _set_grace(self, request, vmi, grace):
        self._write(request, self._kinds.vmi, lambda new: new['spec']
                    .__setitem__('terminationGracePeriodSeconds', grace))

    @staticmethod
    def _check_free(vm, wanted):
        if vm_model.requests(vm) and [r['action'] for r in wanted] != [
                vm_model.STOP]:
            raise errors.internal_error(
                'unable to complete request: stop/start already underway')

    def _ask(self, request, vm, wanted):
        """Put requests into the status, unless others are under way."""
        self._check_free(vm, wanted)

        def change(new):
            status = new.setdefault('status', {})
            status['stateChangeRequests'] = wanted
            status.pop('startFailure', None)
        self._write(request, self._kinds.vm, change, 'status')


def _stop(vmi):
    return {'action': vm_model.STOP, 'uid': paths.at(vmi, 'metadata', 'uid')}
