# SPDX-License-Identifier: Apache-2.0
"""ComputerSystem v1.26: properties, PATCH and Reset of a VM.

`resource` builds the properties of GET: add a property there, or in one of the
functions it calls. `_READ_ONLY` lists properties that PATCH refuses, `patch`
those that it accepts. Replaces sushy-emulator's view, which always shows the
boot override as Continuous and links to resources that do not exist.
"""

from __future__ import annotations

import contextlib
import typing

import flask

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import payload
from sushy_kubevirt.redfish.protocol import responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt.redfish.resources import boot_options
from sushy_kubevirt.redfish.resources import consoles
from sushy_kubevirt.redfish.resources import hardware
from sushy_kubevirt.redfish.resources import resource_paths
from sushy_kubevirt.redfish.services import system_id

if typing.TYPE_CHECKING:
    from collections import abc

    from sushy_kubevirt.machine import inventory
    from sushy_kubevirt.machine import machine

ROOT = resource_paths.SYSTEMS
path = resource_paths.system

INDICATOR = ('Lit', 'Blinking', 'Off')

#: Value of Redfish's ResetType that no KubeVirt VM supports.
_NMI = power_state.ResetType.NMI.value

RESET_TYPES = tuple(kind.value for kind in power_state.OFFERED)

# Refused with SUSHY_EMULATOR_DISABLE_POWER_OFF. Resets are allowed, because
# they leave the system on.
_POWERS_OFF = ('ForceOff', 'GracefulShutdown', 'PushPowerButton')

_RESTORE_POLICIES = tuple(
    policy.value for policy in power_restore_policy.Policy)

# Power state: Resource.State of the system.
_STATES = {
    power_state.PowerState.ON: 'Enabled',
    power_state.PowerState.POWERING_ON: 'Starting',
    power_state.PowerState.POWERING_OFF: 'Enabled',
    power_state.PowerState.PAUSED: 'Quiesced',
    power_state.PowerState.OFF: 'StandbyOffline',
}

#: Resources below a system, by the lowest feature set that links to them.
_CHILDREN = {
    'vmedia': ('EthernetInterfaces', 'VirtualMedia'),
    'full': ('Bios', 'LogServices', 'Memory', 'Processors', 'SecureBoot',
             'SimpleStorage', 'Storage'),
}

_READ_ONLY = payload.read_only(
    'Id', 'Name', 'UUID', 'SystemType', 'Manufacturer', 'Model',
    'SerialNumber', 'HostName', 'Description', 'Status', 'PowerState',
    'ProcessorSummary', 'MemorySummary', 'BiosVersion', 'BootProgress',
    'LastResetTime', 'GraphicalConsole', 'SerialConsole', 'TrustedModules',
    'Links', 'Actions', 'Oem', *_CHILDREN['vmedia'], *_CHILDREN['full'])


def collection() -> responses.Document:
    """GET /redfish/v1/Systems"""
    return resource_paths.machine_collection(
        'ComputerSystem', 'Computer System Collection', ROOT)


# Properties (GET)

def resource(machine: machine.Machine) -> responses.Json:
    """GET /redfish/v1/Systems/<identity>"""
    app = application.current()
    here = path(machine)
    full = app.feature_set == 'full'
    more = app.feature_set != 'minimum'
    state = machine.power_state()
    body: responses.Json = {
        '@odata.id': here,
        '@odata.type': '#ComputerSystem.v1_26_0.ComputerSystem',
        'Id': system_id.of(machine),
        'Name': machine.name,
        'Description': f'KubeVirt VirtualMachine {machine.qualified_name}',
        'UUID': machine.uuid,
        'SystemType': 'Virtual',
        'Manufacturer': 'KubeVirt',
        'PowerState': state.value,
        'Boot': boot_options.boot_property(machine, full),
        'Actions': {'#ComputerSystem.Reset': {
            'target': here + '/Actions/ComputerSystem.Reset',
            'ResetType@Redfish.AllowableValues': reset_types(app),
        }},
        'Links': {},
    }
    if more:
        body['Links']['ManagedBy'] = [
            responses.link(resource_paths.manager(machine))]
        body.update(_links(here, 'vmedia'))
    if full:
        body['Links']['Chassis'] = [
            responses.link(resource_paths.chassis(machine))]
        body.update(_links(here, 'full'))
        inventory = machine.inventory()
        _add_inventory(body, machine, inventory)
        _add_consoles(body, machine, inventory)
        _add_state(body, machine, state, inventory)
        actions = body['Actions']
        actions['#ComputerSystem.Reset']['@Redfish.ActionInfo'] = (
            here + '/ResetActionInfo')
        actions['#ComputerSystem.SetDefaultBootOrder'] = {
            'target': here + '/Actions/ComputerSystem.SetDefaultBootOrder'}
    return body


def _links(here: str, feature: str) -> responses.Json:
    return resource_paths.links(here, ROOT + '/<identity>', _CHILDREN[feature])


def _add_state(body: responses.Json, machine: machine.Machine,
               state: power_state.PowerState, inventory: inventory.Inventory
               ) -> None:
    """Add Status, settable properties and times to a system's body."""
    body['Status'] = status(machine, state)
    indicator = machine.indicator()
    body['IndicatorLED'] = indicator
    body['LocationIndicatorActive'] = indicator != 'Off'
    body['AssetTag'] = machine.asset_tag()
    policy = machine.power_restore_policy()
    if policy is not None:
        body['PowerRestorePolicy'] = policy.value
        body['PowerRestorePolicy@Redfish.AllowableValues'] = list(
            _RESTORE_POLICIES)
    body.update(responses.present(LastResetTime=inventory.started))
    if inventory.booted:
        body['BootProgress'] = {'LastState': 'OSRunning',
                                'LastStateTime': inventory.booted}
    elif state is power_state.PowerState.OFF:
        body['BootProgress'] = {'LastState': 'None'}


def _add_inventory(body: responses.Json, machine: machine.Machine,
                   inventory: inventory.Inventory) -> None:
    cpus = inventory.cpus
    body['ProcessorSummary'] = {
        'Count': cpus.sockets,
        'CoreCount': cpus.sockets * cpus.cores,
        'LogicalProcessorCount': cpus.total,
        'ThreadingEnabled': cpus.threads > 1,
        **responses.present(Model=hardware.processor_model(cpus)),
    }
    body['BiosVersion'] = inventory.firmware_version
    body['Oem'] = {'SushyKubevirt': {
        'Namespace': machine.namespace,
        **responses.present(NodeName=inventory.node)}}
    body.update(responses.present(
        Model=inventory.machine_type,
        SerialNumber=inventory.serial,
        HostName=inventory.hostname,
        MemorySummary={'TotalSystemMemoryGiB': hardware.to_gib(
            inventory.memory_bytes)} if inventory.memory_bytes else None,
        TrustedModules=[{'InterfaceType': 'TPM2_0',
                         'Status': resource_paths.STATUS_OK}]
        if inventory.tpm else None,
    ))


def _add_consoles(body: responses.Json, machine: machine.Machine,
                  inventory: inventory.Inventory) -> None:
    """Describe the display, and the serial port with Serial over LAN.

    The latter only if clients know an IPMI port. Both are also available
    through KubeVirt's API.
    """
    if inventory.graphics:
        body['GraphicalConsole'] = {
            'ServiceEnabled': True, 'MaxConcurrentSessions': 1,
            'ConnectTypesSupported': ['OEM']}
        websocket = consoles.describe(machine, consoles.GRAPHICAL)
        if websocket:
            body['Oem']['SushyKubevirt'][consoles.GRAPHICAL] = websocket
    if inventory.serial_console:
        serial: responses.Json = {'MaxConcurrentSessions': 1}
        body['SerialConsole'] = serial
        port = dict(application.current().systems.settings.service_ports).get(
            'IPMI')
        if port:
            serial['IPMI'] = {'ServiceEnabled': True, 'Port': port,
                              'SharedWithManagerCLI': False}
        websocket = consoles.describe(machine, consoles.SERIAL)
        if websocket:
            serial['WebSocket'] = {'ServiceEnabled': True, **websocket}


def status(machine: machine.Machine, state: power_state.PowerState
           ) -> responses.Json:
    """Build the property Status of a system.

    :returns: Resource.Status; its Conditions say why the VM does not work
    """
    problem = machine.problem()
    if problem is not None:
        return unhealthy(machine, 'UnavailableOffline', 'Critical', problem,
                         'The VM was started and cannot run')
    impairment = machine.impairment()
    if impairment is not None:
        return unhealthy(machine, _STATES[state], 'Critical', impairment,
                         'The guest does not work')
    error = machine.reconcile_error()
    if error is not None:
        return unhealthy(machine, _STATES[state], 'Warning', error,
                         'KubeVirt cannot do what the VM requests')
    return {'State': _STATES[state], 'Health': 'OK', 'HealthRollup': 'OK'}


def unhealthy(machine: machine.Machine, state: str, health: str,
              problem: power_state.Problem, text: str) -> responses.Json:
    """Build the property Status of what does not work.

    :param state: Resource.State
    :param health: Resource.Health, also the severity of the condition
    :param text: what does not work, before the reason
    :returns: Resource.Status
    """
    return {
        'State': state,
        'Health': health,
        'HealthRollup': health,
        'Conditions': [{
            'MessageId': 'ResourceEvent.1.3.ResourceErrorsDetected',
            'MessageArgs': ['PowerState', problem.reason],
            'Message': f'{text}: {problem.reason}: {problem.message}',
            'Severity': health,
            'OriginOfCondition': responses.link(path(machine)),
        }],
    }


def reset_types(app: application.Application) -> list[str]:
    """List the values of ResetType that the service accepts."""
    if app.systems.settings.power_off:
        return list(RESET_TYPES)
    return [value for value in RESET_TYPES if value not in _POWERS_OFF]


# Changes (PATCH)

def patch(machine: machine.Machine) -> None:
    """PATCH /redfish/v1/Systems/<identity>"""
    full = application.current().feature_set == 'full'
    shape: dict[str, payload.Kind] = {
        **_READ_ONLY, 'Boot': boot_options.patch_shape(machine, full)}
    if full:
        shape.update(IndicatorLED=INDICATOR, LocationIndicatorActive=bool,
                     AssetTag=str, PowerRestorePolicy=_RESTORE_POLICIES)
    values = payload.properties(shape)
    indicator = requested_indicator(machine, values)
    chosen = values.get('Boot')
    if chosen:
        boot_options.validate(machine, chosen)
    policy = values.get('PowerRestorePolicy')
    others = {name: value for name, value in (
        ('PowerRestorePolicy', policy), ('AssetTag', values.get('AssetTag')),
        ('IndicatorLED', indicator)) if value is not None}
    if chosen or others:
        with _property_errors(machine, chosen, others):
            machine.change(
                boot_settings=boot_options.settings(chosen) if chosen
                else None,
                policy=policy and power_restore_policy.Policy(policy),
                asset_tag=values.get('AssetTag'), indicator=indicator)
    if chosen:
        boot_options.log(machine, chosen)
    for name, value in others.items():
        flask.current_app.logger.info(
            '%s of %s set to %r', name, machine.qualified_name, value)


@contextlib.contextmanager
def _property_errors(machine: machine.Machine, chosen: responses.Json | None,
                     others: responses.Json) -> abc.Iterator[None]:
    """Convert errors of a change of properties of Boot and others."""
    try:
        yield
    except errors.MachineError as exc:
        name = getattr(exc, 'property', None)
        if not chosen or name in others:
            name = name if name in others else next(iter(others))
            pointer, value = name, others[name]
        else:
            name = next(iter(chosen))
            pointer, value = 'Boot/' + name, chosen[name]
        with resource_paths.property_errors(machine, pointer, value):
            raise


def requested_indicator(machine: machine.Machine, values: responses.Json
                        ) -> str | None:
    """Return the requested state of the indicator; also for the chassis.

    :param values: properties of a PATCH
    :returns: a member of `INDICATOR`; None to leave it unchanged
    :raises: `error_responses.RedfishError`, 400 if IndicatorLED and
        LocationIndicatorActive contradict each other
    """
    state = values.get('IndicatorLED')
    active = values.get('LocationIndicatorActive')
    if active is None:
        return state
    if state is None:
        if active == (machine.indicator() != 'Off'):
            return None
        return 'Blinking' if active else 'Off'
    if active != (state != 'Off'):
        raise error_responses.base_error(
            400, 'PropertyValueConflict', 'LocationIndicatorActive',
            'IndicatorLED',
            related=['#/LocationIndicatorActive', '#/IndicatorLED'])
    return state


# Actions

def reset(machine: machine.Machine) -> None:
    """POST /redfish/v1/Systems/<identity>/Actions/ComputerSystem.Reset"""
    app = application.current()
    action = 'ComputerSystem.Reset'
    allowed = reset_types(app)
    kind = payload.parameters(action, {'ResetType': str},
                              required=['ResetType'])['ResetType']
    if kind not in allowed:
        raise error_responses.base_error(
            400, 'ActionParameterValueNotInList', kind, 'ResetType', action,
            detail=_reset_type_detail(kind, allowed))
    with resource_paths.property_errors(machine, 'ResetType', kind):
        machine.reset(power_state.ResetType(kind))
    app.logger.info('Reset %s of %s', kind, machine.qualified_name)


def reset_info(machine: machine.Machine) -> responses.Json:
    """GET …/ResetActionInfo: parameters of Reset"""
    return responses.action_info(
        path(machine, 'ResetActionInfo'), 'Reset Action Info',
        responses.parameter('ResetType', True, values=reset_types(
            application.current())))


def _reset_type_detail(kind: str, allowed: list[str]) -> str:
    values = f"Allowed values: {', '.join(allowed)}."
    if kind == _NMI:
        return ('KubeVirt cannot send a diagnostic interrupt to a guest. '
                + values)
    if kind in _POWERS_OFF:
        return ('Switching systems off is disabled by '
                'SUSHY_EMULATOR_DISABLE_POWER_OFF. ' + values)
    return values


ROOT_LINKS = {'Systems': ROOT}

ROUTES = (
    routing.replace('system_collection_resource', collection, 'minimum'),
    routing.replace('system_resource', resource, 'minimum', patch=patch,
                    cached=True),
    routing.replace('system_reset_action', None, 'minimum', post=reset),
    routing.add(ROOT + '/<identity>/ResetActionInfo', reset_info,
                cached=True),
)
