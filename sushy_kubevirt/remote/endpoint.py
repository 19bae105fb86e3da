# SPDX-License-Identifier: Apache-2.0
"""Addresses and credentials of BMCs, from the objects of the operator.

The status of a VirtualMachineBMC has the addresses, and names the Secret with
the credentials and the ConfigMap with the certificate of its authority.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import typing
import urllib.parse

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import credentials

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client

#: Key of a TLS Secret with the certificate of its authority (cert-manager).
_SECRET_CA = 'ca.crt'


class BmcUnavailable(errors.MachineError):
    """A BMC cannot be reached, or refuses a request.

    :param name: of the BMC
    :param reason: what is wrong, and what to do
    :param status: HTTP's status code; None without a response
    """

    def __init__(self, name: str, reason: str,
                 status: int | None = None) -> None:
        super().__init__(f'BMC of {name}: {reason}')
        self.status = status


@dataclasses.dataclass(frozen=True)
class Bmc:
    """How to reach a BMC.

    :param address: IP address or name
    :param redfish_port: TCP port of Redfish (HTTPS); None if it has none
    :param ipmi_port: UDP port of IPMI; None if it has none
    :param username: of its account
    :param password: likewise
    :param ca: certificates (PEM) that verify its own; None if unknown
    :param revision: text that changes with the credentials, such as UID and
        resourceVersion of their Secret
    :param secret: name of that Secret
    :param authority: name of the ConfigMap with ``ca``
    :param http_port: TCP port of Redfish without TLS, if it has no other
    :param name: of the VirtualMachineBMC
    :param namespace: likewise
    """

    address: str
    redfish_port: int | None = 443
    ipmi_port: int | None = 623
    username: str = ''
    password: str = dataclasses.field(default='', repr=False)
    ca: str | None = dataclasses.field(default=None, repr=False)
    revision: str = ''
    secret: str = ''
    authority: str = ''
    http_port: int | None = None
    name: str = ''
    namespace: str = ''

    @property
    def url(self) -> str:
        """Root of Redfish's URLs, '' if it has none."""
        if self.redfish_port:
            return 'https://' + host_and_port(
                self.address, self.redfish_port, 443)
        return self.http_port and 'http://' + host_and_port(
            self.address, self.http_port, 80) or ''


#: Reads an object: resource, its name, name of the BMC that refers to it.
Find: typing.TypeAlias = abc.Callable[
    [api_resources.AnyResource, str, str], objects.Json]


#: Objects of kinds, by name.
Listed: typing.TypeAlias = abc.Mapping[
    api_resources.AnyResource, abc.Mapping[str, objects.Json]]


def finder(client: client.Client, namespace: str,
           listed: Listed = {}) -> Find:
    """Return a function that returns what a BMC refers to.

    :param listed: objects that are not read again
    """
    def find(resource: api_resources.AnyResource, name: str,
             bmc: str) -> objects.Json:
        obj = listed.get(resource, {}).get(name)
        if obj is None:
            try:
                obj = client.get(resource, namespace, name)
            except errors.ObjectNotFound as error:
                raise BmcUnavailable(
                    bmc, f'{resource.kind} {namespace}/{name} does not '
                    'exist') from error
        return obj
    return find


def read(live: objects.VirtualMachineBMC, find: Find) -> Bmc:
    """Read addresses and credentials.

    :param live: the VirtualMachineBMC
    :raises: `BmcUnavailable`; `errors.MachineError`
    """
    name, status = live['metadata']['name'], live.get('status') or {}
    endpoints = status.get('endpoints') or {}
    if not endpoints.get('redfish') and not endpoints.get('ipmi'):
        raise BmcUnavailable(name, not_ready(live) or 'has no address')
    if not status.get('authSecret'):
        raise BmcUnavailable(name, 'has no Secret with credentials')
    secret = find(api_resources.SECRET, status['authSecret'], name)
    for key in credentials.missing(secret):
        raise BmcUnavailable(
            name, f"Secret {status['authSecret']} has no usable {key}")
    redfish, ipmi = endpoints.get('redfish'), endpoints.get('ipmi') or {}
    ports, authority = {}, None
    if redfish:
        url = urllib.parse.urlsplit(redfish['url'])
        ports[url.scheme] = url.port or {'https': 443, 'http': 80}[url.scheme]
        authority = redfish.get('certificateAuthority')
    ca = None
    if authority:
        ca = find(
            api_resources.CONFIG_MAP, authority['configMap'],
            name).get('data', {}).get(authority['key'])
    elif own := (((live.get('spec') or {}).get('redfish') or {}).get('tls')
                 or {}).get('secretName'):
        # None if it is of a public authority.
        ca = credentials.text((find(api_resources.SECRET, own, name).get(
            'data') or {}).get(_SECRET_CA)) or None
    metadata = secret['metadata']
    return Bmc(
        address(endpoints), redfish_port=ports.get('https'),
        ipmi_port=ipmi.get('port'),
        username=credentials.text(secret['data'][credentials.USERNAME]),
        password=credentials.text(secret['data'][credentials.PASSWORD]), ca=ca,
        revision=f"{metadata['uid']}/{metadata['resourceVersion']}",
        secret=metadata['name'],
        authority=authority['configMap'] if authority else '',
        http_port=ports.get('http'), name=name,
        namespace=live['metadata'].get('namespace', ''))


def address(endpoints: objects.Json) -> str:
    """Return the address of a BMC for clients, '' while there is none.

    :param endpoints: ``status.endpoints``
    """
    url = (endpoints.get('redfish') or {}).get('url') or ''
    return (urllib.parse.urlsplit(url).hostname
            or (endpoints.get('ipmi') or {}).get('host') or '')


def not_ready(live: objects.VirtualMachineBMC) -> str:
    """Return why a BMC is not ready, '' if it is.

    :returns: reason and message of its condition
    """
    condition = objects.conditions_of(live).get('Ready')
    if condition is None or condition.get('observedGeneration', 0) < live[
            'metadata'].get('generation', 0):
        return 'the operator has not processed it yet'
    if condition['status'] == 'True':
        return ''
    return f"{condition['reason']}: {condition.get('message', '')}"


def host_and_port(host: str, port: int | None, default: int) -> str:
    """Write an address as in a URL.

    :param host: IP address or name
    :param default: port that is left out
    """
    host = f'[{host}]' if ':' in host else host
    return host if port == default else f'{host}:{port}'
