# SPDX-License-Identifier: Apache-2.0
"""ComputerSystem: what a VM shows, what can be changed, and its Reset.

Property by property after ComputerSystem v1.22. Upstream's own body always
says Continuous and Enabled and links to resources that do not answer; this
one says what is so.
"""

import contextlib

import flask

from sushy_kubevirt.kubevirt import boot
from sushy_kubevirt.kubevirt import errors as machine_errors
from sushy_kubevirt.kubevirt import power
from sushy_kubevirt.redfish.protocol import errors
from sushy_kubevirt.redfish.protocol import messages
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import inventory as figures

ROOT = '/redfish/v1/Systems'

INDICATOR = ('Lit', 'Blinking', 'Off')

#: What no KubeVirt machine can, and Redfish has a name for.
_NMI = power.ResetType.NMI.value

RESET_TYPES = tuple(kind.value for kind in power.ResetType
                    if kind is not power.ResetType.NMI)

# With SUSHY_EMULATOR_DISABLE_POWER_OFF these are refused; a reset, which
# leaves the system on, is not.
_POWERS_OFF = ('ForceOff', 'GracefulShutdown', 'PushPowerButton')

_ENABLED = tuple(value.value for value in boot.Enabled)
_MODES = tuple(value.value for value in boot.Mode)

# Power state: Resource.State of the system.
_STATES = {
    power.PowerState.ON: 'Enabled',
    power.PowerState.POWERING_ON: 'Starting',
    power.PowerState.POWERING_OFF: 'Enabled',
    power.PowerState.PAUSED: 'Quiesced',
    power.PowerState.OFF: 'StandbyOffline',
}

_READ_ONLY = payload.read_only(
    'Id', 'Name', 'UUID', 'SystemType', 'Manufacturer', 'Model',
    'SerialNumber', 'HostName', 'Description', 'Status', 'PowerState',
    'ProcessorSummary', 'MemorySummary', 'BiosVersion', 'Bios', 'Processors',
    'SecureBoot', 'SimpleStorage', 'EthernetInterfaces', 'VirtualMedia',
    'Links', 'Actions')

_NO_HTTP_BOOT = payload.ReadOnly('A VM cannot be booted from a URI by HTTP.')


def path(machine):
    return '%s/%s' % (ROOT, machine.uuid)


def collection():
    """GET /redfish/v1/Systems"""
    driver = flask.current_app.systems
    return responses.collection(
        'ComputerSystemCollection', 'Computer System Collection', ROOT,
        [path(machine) for machine in driver.machines()])


def resource(machine):
    """GET, PATCH /redfish/v1/Systems/<identity>"""
    if flask.request.method == 'PATCH':
        return _patch(machine)
    return responses.resource(_body(machine, flask.current_app))


# What is shown

def _body(machine, app):
    here = path(machine)
    full = app.feature_set == 'full'
    more = app.feature_set != 'minimum'
    state = machine.power_state()
    body = {
        '@odata.id': here,
        '@odata.type': '#ComputerSystem.v1_22_0.ComputerSystem',
        'Id': machine.uuid,
        'Name': machine.name,
        'Description': 'KubeVirt VirtualMachine %s' % machine.qualified_name,
        'UUID': machine.uuid,
        'SystemType': 'Virtual',
        'Manufacturer': 'KubeVirt',
        'PowerState': state.value,
        'Boot': _boot(machine),
        'Actions': {'#ComputerSystem.Reset': {
            'target': here + '/Actions/ComputerSystem.Reset',
            'ResetType@Redfish.AllowableValues': reset_types(app),
        }},
        'Links': _links(machine, full, more, app),
    }
    if full:
        _add_inventory(body, here, machine)
        body['Status'] = _status(machine, state, here)
        indicator = machine.indicator()
        body['IndicatorLED'] = indicator
        body['LocationIndicatorActive'] = indicator != 'Off'
        for name in 'Bios', 'Processors', 'SecureBoot', 'SimpleStorage':
            body[name] = responses.link('%s/%s' % (here, name))
    if more:
        for name in 'EthernetInterfaces', 'VirtualMedia':
            body[name] = responses.link('%s/%s' % (here, name))
    return body


def _add_inventory(body, here, machine):
    found = machine.inventory()
    cpus = found.cpus
    summary = {
        'Count': cpus.sockets,
        'CoreCount': cpus.sockets * cpus.cores,
        'LogicalProcessorCount': cpus.total,
        'ThreadingEnabled': cpus.threads > 1,
    }
    if cpus.model:
        summary['Model'] = cpus.model
    body['ProcessorSummary'] = summary
    if found.memory_bytes:
        body['MemorySummary'] = {
            'TotalSystemMemoryGiB': figures.gib(found.memory_bytes)}
    body['BiosVersion'] = figures.bios_version(found)
    if found.machine_type:
        body['Model'] = found.machine_type
    if found.serial:
        body['SerialNumber'] = found.serial
    if found.hostname:
        body['HostName'] = found.hostname


def _status(machine, state, here):
    problem = machine.problem()
    if problem is None:
        return {'State': _STATES[state], 'Health': 'OK',
                'HealthRollup': 'OK'}
    return {
        'State': 'UnavailableOffline',
        'Health': 'Critical',
        'HealthRollup': 'Critical',
        'Conditions': [{
            'MessageId': 'ResourceEvent.1.3.ResourceErrorsDetected',
            'MessageArgs': ['PowerState', problem.reason],
            'Message': 'The VM was told to start and cannot: %s: %s'
            % (problem.reason, problem.message),
            'Severity': 'Critical',
            'OriginOfCondition': responses.link(here),
        }],
    }


def _boot(machine):
    state = machine.boot()
    return {
        'BootSourceOverrideEnabled': state.enabled.value,
        'BootSourceOverrideEnabled@Redfish.AllowableValues': list(_ENABLED),
        'BootSourceOverrideTarget': state.target.value,
        'BootSourceOverrideTarget@Redfish.AllowableValues':
            boot_targets(machine),
        'BootSourceOverrideMode': state.mode.value,
        'BootSourceOverrideMode@Redfish.AllowableValues': list(_MODES),
    }


def boot_targets(machine):
    """Values of BootSourceOverrideTarget that this VM can take."""
    none = boot.Target.NONE
    return [none.value] + [target.value for target in machine.boot_targets()
                           if target is not none]


def reset_types(app):
    """Values of ResetType that are not refused."""
    if app.systems.settings.power_off:
        return list(RESET_TYPES)
    return [value for value in RESET_TYPES if value not in _POWERS_OFF]


def _links(machine, full, more, app):
    links = {}
    if full:
        links['Chassis'] = [responses.link('/redfish/v1/Chassis/' + uuid)
                            for uuid in app.chassis.chassis[:1]]
    if more:
        links['ManagedBy'] = [
            responses.link('/redfish/v1/Managers/' + machine.uuid)]
    return links


# What can be changed

def _patch(machine):
    shape = {**_READ_ONLY, 'Boot': {
        'BootSourceOverrideTarget': tuple(boot_targets(machine)),
        'BootSourceOverrideEnabled': _ENABLED,
        'BootSourceOverrideMode': _MODES,
        'HttpBootUri': _NO_HTTP_BOOT,
    }}
    if flask.current_app.feature_set == 'full':
        shape['IndicatorLED'] = INDICATOR
        shape['LocationIndicatorActive'] = bool
    values = payload.properties(shape)
    indicator = _indicator(machine, values)
    chosen = values.get('Boot')
    if chosen:
        _set_boot(machine, chosen)
    if indicator is not None:
        machine.set_indicator(indicator)
        flask.current_app.logger.info(
            'Indicator of %s set to %s', machine.qualified_name, indicator)
    return responses.done()


def _indicator(machine, values):
    """The indicator's state that is asked for; None to leave it."""
    state = values.get('IndicatorLED')
    active = values.get('LocationIndicatorActive')
    if active is None:
        return state
    if state is None:
        if active == (machine.indicator() != 'Off'):
            return None
        return 'Blinking' if active else 'Off'
    if active != (state != 'Off'):
        raise errors.RedfishError(400, messages.message(
            'PropertyValueConflict', 'LocationIndicatorActive',
            'IndicatorLED', related=['#/LocationIndicatorActive',
                                     '#/IndicatorLED']))
    return state


def _set_boot(machine, chosen):
    target = chosen.get('BootSourceOverrideTarget')
    enabled = chosen.get('BootSourceOverrideEnabled')
    mode = chosen.get('BootSourceOverrideMode')
    if enabled and enabled != boot.Enabled.DISABLED.value and len(
            chosen) == 1 and machine.boot().target is boot.Target.NONE:
        raise errors.RedfishError(400, messages.message(
            'PropertyMissing', 'BootSourceOverrideTarget',
            detail='There is none to be used %s.' % enabled,
            related=['#/Boot/BootSourceOverrideTarget']))
    name = next(iter(chosen))
    with refusals(machine, 'Boot/' + name, chosen[name]):
        machine.set_boot(
            target=boot.Target(target) if target else None,
            enabled=boot.Enabled(enabled) if enabled else None,
            mode=boot.Mode(mode) if mode else None)
    flask.current_app.logger.info(
        'Boot of %s set to %s', machine.qualified_name,
        ', '.join('%s=%s' % item for item in sorted(chosen.items())))


@contextlib.contextmanager
def refusals(machine, name, value):
    """Name the property and value when the machine refuses a change."""
    try:
        yield
    except machine_errors.InvalidValue as exc:
        refused = getattr(exc.value, 'value', exc.value)
        raise errors.RedfishError(400, messages.message(
            'PropertyValueIncorrect', exc.property, refused, detail=str(exc),
            related=['#/' + name])) from exc
    except (machine_errors.WrongState, machine_errors.Rejected) as exc:
        raise errors.RedfishError(409, messages.message(
            'PropertyValueResourceConflict', name.rpartition('/')[2], value,
            path(machine), detail=str(exc), related=['#/' + name])) from exc


# What can be done

def reset(machine):
    """POST /redfish/v1/Systems/<identity>/Actions/ComputerSystem.Reset"""
    app = flask.current_app
    action = 'ComputerSystem.Reset'
    allowed = reset_types(app)
    kind = payload.parameters(action, {'ResetType': str},
                              required=['ResetType'])['ResetType']
    if kind not in allowed:
        raise errors.RedfishError(400, messages.message(
            'ActionParameterValueNotInList', kind, 'ResetType', action,
            detail=_why_not(kind, allowed)))
    with refusals(machine, 'ResetType', kind):
        machine.reset(power.ResetType(kind))
    app.logger.info('%s of %s', kind, machine.qualified_name)
    return responses.done()


def _why_not(kind, allowed):
    takes = 'It takes %s.' % ', '.join(allowed)
    if kind == _NMI:
        return ('KubeVirt cannot send a diagnostic interrupt to a guest. '
                + takes)
    if kind in _POWERS_OFF:
        return ('Switching systems off is disabled by '
                'SUSHY_EMULATOR_DISABLE_POWER_OFF. ' + takes)
    return takes


ROOT_LINKS = {'Systems': ROOT}

ROUTES = (
    routing.replace('system_collection_resource', collection, 'minimum'),
    routing.replace('system_resource', resource, 'minimum'),
    routing.replace('system_reset_action', reset, 'minimum'),
)
