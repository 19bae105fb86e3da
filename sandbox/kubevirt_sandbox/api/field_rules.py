# SPDX-License-Identifier: Apache-2.0
"""Rules for values that fields of several kinds share.

A rule takes a value and returns why it is not allowed, or None. `check` and
`labels` append the causes of an object's fields to a list.

Source: apimachinery/pkg/util/validation of Kubernetes 1.37, with the features
StrictIPCIDRValidation and RelaxedServiceNameValidation, on by default since
1.36.
"""
import ipaddress
import json
import re

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import metadata

_ZEROS = re.compile(r'(^|[./])0\d')
_PORT_NAME = re.compile('(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*')


def checker(kind, faults):
    """Make the hook that refuses invalid objects of a kind.

    :param kind: function that returns the Kind
    :param faults: function of an object and the one before, or None, that
        returns a list of :class:`errors.Cause`
    """
    def check(admission):
        new = admission.new
        if new is None or admission.subresource:
            return
        found = faults(new, admission.old)
        if found:
            raise errors.invalid(kind(), new['metadata'].get('name'), found)
    return check


def invalid(found, field, value, why):
    """Append the cause of an invalid value."""
    found.append(errors.Cause(
        'FieldValueInvalid', f'Invalid value: {json.dumps(value)}: {why}',
        field))


def required(found, field, why=''):
    """Append the cause of a missing value."""
    found.append(errors.Cause(
        'FieldValueRequired', 'Required value' + (why and f': {why}'), field))


def forbidden(found, field, why):
    """Append the cause of a field that may not be there."""
    found.append(errors.Cause('FieldValueForbidden', f'Forbidden: {why}',
                              field))


def unsupported(found, field, value, supported):
    """Append the cause of a value that is none of those supported."""
    found.append(errors.Cause(
        'FieldValueNotSupported', f'Unsupported value: {json.dumps(value)}: '
        'supported values: ' + ', '.join(f'"{one}"' for one in supported),
        field))


def check(found, field, value, rule):
    """Append the cause if a rule does not allow a value."""
    why = rule(value)
    if why:
        invalid(found, field, value, why)


def labels(found, field, values):
    """Append the causes of a dict of labels, such as a selector."""
    for key, value in (values or {}).items():
        check(found, field, key, metadata.key_fault)
        check(found, field, value, metadata.value_fault)


def selector(found, field, value):
    """Append the causes of a label selector.

    Source: apimachinery/pkg/apis/meta/v1/validation (1.37),
    ValidateLabelSelector.
    """
    labels(found, field + '.matchLabels', value.get('matchLabels'))
    for at, term in enumerate(value.get('matchExpressions') or ()):
        where = f'{field}.matchExpressions[{at}]'
        operator, values = term.get('operator', ''), term.get('values') or ()
        if operator in ('In', 'NotIn'):
            if not values:
                required(found, where + '.values', 'must be specified when '
                         "`operator` is 'In' or 'NotIn'")
        elif operator not in ('Exists', 'DoesNotExist'):
            invalid(found, where + '.operator', operator,
                    'not a valid selector operator')
        elif values:
            forbidden(found, where + '.values', 'may not be specified when '
                      "`operator` is 'Exists' or 'DoesNotExist'")
        check(found, where + '.key', term.get('key', ''), metadata.key_fault)
        for index, one in enumerate(values):
            check(found, f'{where}.values[{index}]', one,
                  metadata.value_fault)


def ip(value):
    """Rule for an address."""
    try:
        address = ipaddress.ip_address(_without_zeros(value))
    except ValueError:
        address = None
    if address is None or '%' in value:
        return 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'
    if address.version == 4 and _ZEROS.search(value):
        return 'must not have leading 0s'
    if address.version == 6 and address.ipv4_mapped:
        return 'must not be an IPv4-mapped IPv6 address'
    return None


def external_ip(value):
    """Rule for an address that clients outside of a node can reach."""
    why = ip(value)
    if why:
        return why
    address = ipaddress.ip_address(value)
    return next((text for member, text in (
        ('is_unspecified', f'may not be unspecified ({value})'),
        ('is_loopback', 'may not be in the loopback range (127.0.0.0/8, '
         '::1/128)'),
        ('is_link_local', 'may not be in the link-local range '
         '(169.254.0.0/16, fe80::/10)')) if getattr(address, member)), None)


def cidr(value):
    """Rule for a network."""
    address, _, length = value.partition('/')
    try:
        network = ipaddress.ip_interface(_without_zeros(value))
    except ValueError:
        network = None
    if network is None or '%' in value or not (
            length.isascii() and length.isdecimal()):
        return ('must be a valid CIDR value, (e.g. 10.9.8.0/24 or '
                '2001:db8::/64)')
    if (network.version == 4 and _ZEROS.search(value)
            or _ZEROS.search('/' + length)):
        return 'must not have leading 0s in IP or prefix length'
    if network.version == 6 and network.ip.ipv4_mapped:
        return 'must not have an IPv4-mapped IPv6 address'
    if network.ip != network.network.network_address:
        return 'must not have bits set beyond the prefix length'
    return None


def _without_zeros(value):
    """Remove leading zeros, which Python refuses and Kubernetes names."""
    address, slash, length = value.partition('/')
    if ':' not in address:
        address = re.sub(r'(^|\.)0+(?=\d)', r'\1', address)
    return address + slash + re.sub(r'^0+(?=\d)', '', length)


def label(value):
    """Rule for a DNS label (RFC 1123)."""
    return metadata.name_fault(value, label=True)


def subdomain(value):
    """Rule for a DNS subdomain (RFC 1123)."""
    return metadata.name_fault(value)


def port(value):
    """Rule for the number of a port."""
    if 0 < value < 65536:
        return None
    return 'must be between 1 and 65535, inclusive'


def port_or_name(value):
    """Rule for a port by number or by name."""
    if isinstance(value, int):
        return port(value)
    if len(value) > 15:
        return 'must be no more than 15 characters'
    if _PORT_NAME.fullmatch(value):
        return None
    return ('must contain only alpha-numeric characters (a-z, 0-9), and '
            'hyphens (-), at least one letter, and no hyphen at its ends or '
            'beside another')
