# SPDX-License-Identifier: Apache-2.0
"""Admission of memory, processors and machine types.

Source: vmi-create-admitter.go, pkg/liveupdate/memory (KubeVirt 1.9).
"""

import fnmatch

from kubevirt_sandbox.api import quantity
from kubevirt_sandbox.kubevirt.admission import causes
from kubevirt_sandbox.kubevirt import paths

_MEGABYTE = 10 ** 6
_HOTPLUG_BLOCK, _HOTPLUG_LEAST = 2 * 2 ** 20, 2 ** 30
_POLICIES = ('', 'force', 'require', 'optional', 'disable', 'forbid')


def _amount(spec, kind, name):
    text = paths.at(spec, 'domain', 'resources', kind, name)
    return text, quantity.value(text)


def check(field, spec, config):
    """List causes to refuse CPU and memory sizes.

    :param field: the path of the VMI's spec.
    """
    return [*_check_memory(field, spec), *_check_hugepages(field, spec),
            *_check_guest(field, spec, config),
            *_check_machine(field, spec, config), *_check_cpu(field, spec),
            *_check_threads(field, spec),
            *_check_pinning(field, spec), *_check_numa(field, spec),
            *_check_topology(field, spec)]


def _check_memory(field, spec):
    where = f'{field}.domain.resources'
    asked_text, asked = _amount(spec, 'requests', 'memory')
    limit_text, limit = _amount(spec, 'limits', 'memory')
    if asked < 0:
        yield causes.Cause(f"{where}.requests.memory '{asked_text}': must be "
                           'greater than or equal to 0.',
                           f'{where}.requests.memory')
    elif 0 < asked < _MEGABYTE:
        yield causes.Cause(f"{where}.requests.memory '{asked_text}': must be "
                           'greater than or equal to 1M.',
                           f'{where}.requests.memory')
    if limit < 0:
        yield causes.Cause(f"{where}.limits.memory '{limit_text}': must be "
                           'greater than or equal to 0.',
                           f'{where}.limits.memory')
    if 0 < limit < asked:
        yield causes.Cause(
            f"{where}.requests.memory '{asked_text}' is greater than "
            f"{where}.limits.memory '{limit_text}'",
            f'{where}.requests.memory')


def _check_hugepages(field, spec):
    memory = paths.at(spec, 'domain', 'memory') or {}
    if memory.get('hugepages') is None:
        return
    text = memory['hugepages'].get('pageSize', '')
    where = f'{field}.domain.memory.hugepages.pageSize'
    asked = f'{field}.domain.resources.requests.memory'
    try:
        page = quantity.value(text)
    except quantity.QuantityError as error:
        yield causes.Cause(f"{where} '{text}': {error}", where)
        return
    asked_text, amount = _amount(spec, 'requests', 'memory')
    amount = amount or quantity.value(memory.get('guest')) or _amount(
        spec, 'limits', 'memory')[1]
    if not page:
        return
    if 0 != amount < page:
        yield causes.Cause(f"{asked} '{asked_text or 0}' must be equal to or "
                           f"larger than page size {where} '{text}'", asked)
    elif amount % page:
        yield causes.Cause(f"{asked} '{asked_text or 0}' is not a multiple of "
                           f"the page size {where} '{text}'", asked)


def _check_guest(field, spec, config):
    guest = paths.at(spec, 'domain', 'memory', 'guest')
    limit_text, limit = _amount(spec, 'limits', 'memory')
    if config.live_update or guest is None:
        return
    if 0 < limit < quantity.value(guest):
        where = f'{field}.domain.memory.guest'
        yield causes.Cause(
            f"{where} '{guest}' must be equal to or less than the memory "
            f"limit {field}.domain.resources.limits.memory '{limit_text}'",
            where)


def _check_machine(field, spec, config):
    kind = paths.at(spec, 'domain', 'machine', 'type')
    allowed = config.emulated_machines(spec.get('architecture'))
    if kind and not any(fnmatch.fnmatchcase(kind, p) for p in allowed):
        where = f'{field}.domain.machine.type'
        yield causes.Cause(
            f'{where} is not supported: {kind} (allowed values: '
            f'[{" ".join(allowed)}])', where)


def _check_cpu(field, spec):
    where = f'{field}.domain.resources'
    asked_text, asked = _amount(spec, 'requests', 'cpu')
    limit_text, limit = _amount(spec, 'limits', 'cpu')
    for kind, text, amount in (('requests', asked_text, asked),
                               ('limits', limit_text, limit)):
        if amount < 0:
            yield causes.Cause(f"{where}.{kind}.cpu '{text}': must be greater "
                               'than or equal to 0.', f'{where}.{kind}.cpu')
    if 0 < limit < asked:
        yield causes.Cause(
            f"{where}.requests.cpu '{asked_text}' is greater than "
            f"{where}.limits.cpu '{limit_text}'",
            f'{where}.requests.cpu')


def _check_threads(field, spec):
    threads = paths.at(spec, 'domain', 'cpu', 'threads') or 0
    if spec.get('architecture') == 'arm64' and threads > 1:
        yield causes.Cause(
            f'threads must not be greater than 1 at {field}.domain.cpu.threads'
            f' (got {threads}) when {field}.architecture is arm64',
            f'{field}.architecture')


def vcpus(cpu):
    """Return the number of virtual CPUs of a topology."""
    cpu = cpu or {}
    number = 1
    for part in ('sockets', 'cores', 'threads'):
        number *= cpu.get(part) or 1
    return number if any(
        cpu.get(p) for p in ('sockets', 'cores', 'threads')) else 0


def _check_pinning(field, spec):
    cpu = paths.at(spec, 'domain', 'cpu') or {}
    domain = f'{field}.domain'
    pinned = f'{domain}.cpu.dedicatedCpuPlacement'
    if not cpu.get('dedicatedCpuPlacement'):
        if cpu.get('isolateEmulatorThread'):
            yield causes.Cause('IsolateEmulatorThread should be only set in '
                               'combination with DedicatedCPUPlacement',
                               f'{domain}.cpu.isolateEmulatorThread')
        return
    memory = paths.at(spec, 'domain', 'memory') or {}
    asked_memory = _amount(spec, 'requests', 'memory')[1]
    limit_memory = _amount(spec, 'limits', 'memory')[1]
    resources = f'{domain}.resources'
    if not (asked_memory or limit_memory or memory.get('hugepages')
            or quantity.value(memory.get('guest'))):
        yield causes.Cause(f'{resources}.requests.memory, '
                           f'{resources}.limits.memory, '
                           f'{domain}.memory.hugepages or '
                           f'{domain}.memory.guest should be provided',
                           f'{resources}.limits.memory')
    asked, limit = (_amount(spec, kind, 'cpu')[1]
                    for kind in ('requests', 'limits'))
    for kind, amount in (('requests', asked), ('limits', limit)):
        if amount > 0 and amount.denominator != 1:
            yield causes.Cause(f'provided resources CPU {kind} must be an '
                               'interger', f'{resources}.{kind}.cpu')
    if asked_memory and limit_memory and asked_memory != limit_memory:
        yield causes.Cause(f'{resources}.requests.memory must be equal to '
                           f'{resources}.limits.memory',
                           f'{resources}.requests.memory')
    number = vcpus(cpu)
    if not (asked or limit or number):
        yield causes.Cause(f'either {resources}.requests.cpu or '
                           f'{resources}.limits.cpu or {domain}.cpu.cores '
                           'must be provided when DedicatedCPUPlacement is '
                           'true ', pinned)
    if asked and limit and asked != limit:
        yield causes.Cause(
            f'{resources}.requests.cpu or {resources}.limits.cpu '
            'must equal when DedicatedCPUPlacement is true ',
            pinned)
    if (asked or limit) and number and asked != number and limit != number:
        yield causes.Cause(
            f'{resources}.requests.cpu or {resources}.limits.cpu '
            'must not be provided at the same time with '
            f'{domain}.cpu.cores when DedicatedCPUPlacement is '
            'true ', pinned)
    if (cpu.get('threads') or 0) > 2:
        yield causes.Cause(f'Not more than two threads must be provided at '
                           f'{domain}.cpu.threads (got {cpu["threads"]}) when '
                           'DedicatedCPUPlacement is true', pinned)


def _check_numa(field, spec):
    cpu = paths.at(spec, 'domain', 'cpu') or {}
    if paths.at(cpu, 'numa', 'guestMappingPassthrough') is None:
        return
    where = f'{field}.domain.cpu.numa.guestMappingPassthrough'
    if not cpu.get('dedicatedCpuPlacement'):
        yield causes.Cause(
            f'{field}.domain.cpu.dedicatedCpuPlacement must be set '
            'to true when NUMA topology strategy is set in '
            f'{where}', where)
    if paths.at(spec, 'domain', 'memory', 'hugepages') is None:
        yield causes.Cause(
            f'{field}.domain.memory.hugepages must be requested '
            f'when NUMA topology strategy is set in {where}',
            where)


def _check_topology(field, spec):
    cpu = paths.at(spec, 'domain', 'cpu') or {}
    for index, feature in enumerate(cpu.get('features') or ()):
        policy = feature.get('policy', '')
        if policy not in _POLICIES:
            yield causes.Cause(
                f'CPU feature {feature.get("name", "")} uses policy {policy} '
                'that is not supported.',
                f'{field}.domain.cpu.features[{index}].policy',
                causes.NOT_SUPPORTED)
    if 0 < (cpu.get('maxSockets') or 0) < (cpu.get('sockets') or 0):
        yield causes.Cause('Number of sockets in CPU topology is greater than '
                           'the maximum sockets allowed',
                           f'{field}.domain.cpu.sockets')


def check_asked(field, spec):
    """Check that a VMI requests memory."""
    memory = paths.at(spec, 'domain', 'memory') or {}
    if (not _amount(spec, 'requests', 'memory')[1]
            and memory.get('guest') is None
            and memory.get('hugepages') is None):
        domain = f'{field}.domain'
        yield causes.Cause(
            f"no memory requested, at least one of '{domain}.memory.guest', "
            f"'{domain}.memory.hugepages.pageSize' or "
            f"'{domain}.resources.requests.memory' must be set", '',
            causes.REQUIRED)


def hotplug_error(spec, most):
    """Describe why memory cannot be hotplugged, or return ''.

    :param spec: the VMI's spec.
    :param most: the most memory there shall ever be, or None.
    """
    memory = paths.at(spec, 'domain', 'memory') or {}
    if paths.at(spec, 'domain', 'cpu', 'realtime') is not None:
        return 'Memory hotplug is not compatible with realtime VMs'
    if paths.at(spec, 'domain', 'cpu', 'numa',
                'guestMappingPassthrough') is not None:
        return ('Memory hotplug is not compatible with guest mapping '
                'passthrough')
    if paths.at(spec, 'domain', 'launchSecurity') is not None:
        return 'Memory hotplug is not compatible with encrypted VMs'
    if memory.get('guest') is None:
        return ('Guest memory must be configured when memory hotplug is '
                'enabled')
    if most is None:
        return ('Max guest memory must be configured when memory hotplug is '
                'enabled')
    block, words = _HOTPLUG_BLOCK, '2Mi'
    if paths.at(memory, 'hugepages', 'pageSize') == '1Gi':
        block, words = 2 ** 30, '1Gi'
    guest, most = quantity.value(memory['guest']), quantity.value(most)
    if guest > most:
        return ('Guest memory is greater than the configured maxGuest '
                'memory')
    if guest % block:
        return f'Guest memory must be {words} aligned'
    if most % block:
        return f'MaxGuest must be {words} aligned'
    if spec.get('architecture', 'amd64') != 'amd64':
        return 'Memory hotplug is only available for x86_64 VMs'
    if guest < _HOTPLUG_LEAST:
        return ('Memory hotplug is only available for VMs with at least 1Gi '
                'of guest memory')
    return ''


def check_live_update(field, spec, config):
    """Check the maximum sizes for hotplug.

    :param field: the path of the VMI's spec.
    """
    most = paths.at(spec, 'domain', 'memory', 'maxGuest')
    if not config.live_update or most is None:
        return
    why = hotplug_error(spec, most)
    if why:
        yield causes.Cause(why, f'{field}.domain.memory.guest')
