# SPDX-License-Identifier: Apache-2.0
"""Validation of pods and of templates of pods: what users set most.

Source: ValidatePodSpec and the functions that it calls, in
kubernetes/pkg/apis/core/validation/validation.go, and pkg/apis/core/helper
(1.37).
"""
import re

from kubevirt_sandbox.api import field_rules
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import quantity

_OPERATORS = ('Equal', 'Exists')
_EFFECTS = ('NoExecute', 'NoSchedule', 'PreferNoSchedule')
_RESOURCES = ('cpu', 'memory', 'ephemeral-storage')
_HUGE = 'hugepages-'
_VARIABLE = re.compile('[ -<>-~]+')


def pod_faults(new, old):
    """List what is wrong with a new pod, as :class:`errors.Cause`."""
    found = []
    if old is None:
        _spec(found, 'spec', new.get('spec') or {})
    return found


def template(found, where, value):
    """Append the causes of a PodTemplateSpec.

    :param found: list of :class:`errors.Cause`
    :param where: path of the field
    :param value: dict
    """
    meta = value.get('metadata') or {}
    field_rules.labels(found, f'{where}.metadata.labels', meta.get('labels'))
    for key in meta.get('annotations') or {}:
        field_rules.check(found, f'{where}.metadata.annotations',
                          key.lower(), metadata.key_fault)
    _spec(found, f'{where}.spec', value.get('spec') or {})


def _spec(found, where, spec):
    containers = spec.get('containers') or []
    if not containers:
        field_rules.required(found, where + '.containers')
    for part in ('containers', 'initContainers'):
        for at, one in enumerate(spec.get(part) or ()):
            _container(found, f'{where}.{part}[{at}]', one)
    field_rules.labels(found, where + '.nodeSelector',
                       spec.get('nodeSelector'))
    for at, one in enumerate(spec.get('tolerations') or ()):
        _toleration(found, f'{where}.tolerations[{at}]', one)
    if spec.get('serviceAccountName'):
        field_rules.check(found, where + '.serviceAccountName',
                          spec['serviceAccountName'], field_rules.subdomain)
    for at, volume in enumerate(spec.get('volumes') or ()):
        place = f'{where}.volumes[{at}]'
        field_rules.check(found, place + '.name', volume.get('name', ''),
                          field_rules.label)
        for source, field in (('secret', 'secretName'),
                              ('configMap', 'name')):
            if source in volume and not volume[source].get(field):
                field_rules.required(found, f'{place}.{source}.{field}')


def _container(found, where, one):
    field_rules.check(found, where + '.name', one.get('name', ''),
                      field_rules.label)
    image = one.get('image', '')
    if not image:
        field_rules.required(found, where + '.image')
    elif image != image.strip():
        field_rules.invalid(found, where + '.image', image, 'must not have '
                            'leading or trailing whitespace')
    for at, variable in enumerate(one.get('env') or ()):
        if not _VARIABLE.fullmatch(variable.get('name', '')):
            field_rules.invalid(
                found, f'{where}.env[{at}].name', variable.get('name', ''),
                'a valid environment variable name must consist only of '
                "printable ASCII characters other than '='")
    for at, port in enumerate(one.get('ports') or ()):
        place = f'{where}.ports[{at}]'
        field_rules.check(found, place + '.containerPort',
                          port.get('containerPort', 0), field_rules.port)
        if port.get('name'):
            field_rules.check(found, place + '.name', port['name'],
                              field_rules.port_or_name)
    _resources(found, where + '.resources', one.get('resources') or {})


def _resources(found, where, resources):
    limits = resources.get('limits') or {}
    requests = resources.get('requests') or {}
    for kind, amounts in (('limits', limits), ('requests', requests)):
        for name, amount in amounts.items():
            place = f'{where}.{kind}'
            if '/' not in name and name not in _RESOURCES and not (
                    name.startswith(_HUGE)):
                field_rules.invalid(found, place, name, 'must be a standard '
                                    'resource for containers')
            elif name.startswith('requests.'):
                field_rules.invalid(found, place, name, "doesn't follow "
                                    'extended resource name standard')
            else:
                field_rules.check(found, place, name, metadata.key_fault)
            number = quantity.value(amount)
            if number < 0:
                field_rules.invalid(found, f'{place}[{name}]', amount,
                                    'must be greater than or equal to 0')
            elif '/' in name and number.denominator != 1:
                field_rules.invalid(found, f'{place}[{name}]', amount,
                                    'must be an integer')
            elif name.startswith(_HUGE) and not _are_pages(name, number):
                field_rules.invalid(found, f'{place}[{name}]', amount,
                                    f'{amount} is not positive integer '
                                    f'multiple of {name}')
    for name, amount in requests.items():
        place = f'{where}.requests'
        if '/' in name or name.startswith(_HUGE):
            # Cannot be overcommitted.
            if name not in limits:
                field_rules.required(
                    found, where + '.limits',
                    'Limit must be set for non overcommitable resources')
            elif quantity.value(amount) != quantity.value(limits[name]):
                field_rules.invalid(found, place, amount, f'must be equal to '
                                    f'{name} limit of {limits[name]}')
        elif name in limits and (
                quantity.value(amount) > quantity.value(limits[name])):
            field_rules.invalid(
                found, place, amount, f'must be less than or equal to {name} '
                f'limit of {limits[name]}')
    names = {*limits, *requests}
    if any(name.startswith(_HUGE) for name in names) and not (
            names & {'cpu', 'memory'}):
        field_rules.forbidden(found, where, 'HugePages require cpu or memory')


def _are_pages(name, number):
    """Tell whether memory divides into pages of the size in a name."""
    try:
        size = quantity.value(name.removeprefix(_HUGE))
    except quantity.QuantityError:
        return False
    return size > 0 and size.denominator == 1 and not number % size


def _toleration(found, where, one):
    key, operator = one.get('key') or '', one.get('operator') or 'Equal'
    value, effect = one.get('value') or '', one.get('effect') or ''
    if key:
        field_rules.check(found, where + '.key', key, metadata.key_fault)
    elif operator != 'Exists':
        field_rules.invalid(
            found, where + '.operator', one.get('operator', ''), 'operator '
            'must be Exists when `key` is empty, which means "match all '
            'values and all keys"')
    if one.get('tolerationSeconds') is not None and effect != 'NoExecute':
        field_rules.invalid(found, where + '.effect', effect, "effect must "
                            "be 'NoExecute' when `tolerationSeconds` is set")
    if operator not in _OPERATORS:
        field_rules.unsupported(found, where + '.operator', operator,
                                _OPERATORS)
    elif operator == 'Equal':
        field_rules.check(found, where + '.value', value,
                          metadata.value_fault)
    elif value:
        field_rules.invalid(found, where + '.operator', value, "value must "
                            "be empty when `operator` is 'Exists'")
    if effect and effect not in _EFFECTS:
        field_rules.unsupported(found, where + '.effect', effect, _EFFECTS)
