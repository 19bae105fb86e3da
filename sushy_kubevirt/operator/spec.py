# SPDX-License-Identifier: Apache-2.0
"""Reads a VirtualMachineBMC, in either spelling of its fields.

The CustomResourceDefinition has validated the resource, unless it was stored
under the definition of KubeVirtBMC, which has no required fields. Missing
fields get the defaults of the definition. Settings of the operator (images,
resources) are in `deployments.Defaults`.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re

from sushy_kubevirt.machine.media import url_policy

#: Ports of a BMC's Service that KubeVirtBMC's clients use.
HTTP_PORT, IPMI_PORT = 80, 623


@dataclasses.dataclass(frozen=True)
class Reference:
    """An object, by namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f'{self.namespace}/{self.name}'


@dataclasses.dataclass(frozen=True)
class Redfish:
    """
    :param enabled: whether Redfish is served
    :param plain: whether it is served by HTTP only
    :param both: whether it is served by HTTPS, and by HTTP on `HTTP_PORT`
    :param secret: name of the Secret with a user's certificate; None if the
        operator issues one, or with HTTP
    :param web_page: whether the web page is served, if Redfish is
    """

    enabled: bool = True
    plain: bool = False
    both: bool = False
    secret: str | None = None
    web_page: bool = True

    @property
    def display(self):
        """Whether clients can see the VM's display."""
        return self.enabled and self.web_page


@dataclasses.dataclass(frozen=True)
class Service:
    """
    :param type: ``ClusterIP``, ``NodePort`` or ``LoadBalancer``
    :param load_balancer_class: or None
    :param annotations: dict
    :param redfish_port: TCP port
    :param ipmi_port: UDP port
    :param redfish_node_port: or None for what the cluster chooses
    :param ipmi_node_port: the same
    """

    type: str = 'ClusterIP'
    load_balancer_class: str | None = None
    annotations: dict = dataclasses.field(default_factory=dict)
    redfish_port: int = 443
    ipmi_port: int = IPMI_PORT
    redfish_node_port: int | None = None
    ipmi_node_port: int | None = None


@dataclasses.dataclass(frozen=True)
class Route:
    """
    :param termination: ``passthrough`` or ``reencrypt``
    :param annotations: dict
    :param labels: dict
    """

    termination: str
    annotations: dict = dataclasses.field(default_factory=dict)
    labels: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class NetworkPolicy:
    """
    :param enabled: whether the BMC has a NetworkPolicy
    :param networks: tuple of CIDRs whose clients may connect, without those
        that Kubernetes refuses: see `refused_networks`
    :param namespaces: tuple of namespaces whose pods may connect
    """

    enabled: bool = False
    networks: tuple = ()
    namespaces: tuple = ()


@dataclasses.dataclass(frozen=True)
class Media:
    """See the options of virtual media in ``kubevirt.conf``; None and () are
    their defaults."""

    storage_class: str | None = None
    access_mode: str | None = None
    mode: str | None = None
    default_size: str | None = None
    allowed_hosts: tuple = ()
    allow_loopback: bool = False
    verify: bool = True


@dataclasses.dataclass(frozen=True)
class Host:
    """
    :param enabled: whether a selected BMC has a BareMetalHost
    :param ipmi: whether Metal3 uses IPMI
    """

    enabled: bool = True
    ipmi: bool = False


@dataclasses.dataclass(frozen=True)
class Bmc:
    """The spec of a BMC.

    :param namespace: of the resource
    :param name: of the resource
    :param uid: of the resource
    :param generation: of the resource
    :param vm: `Reference` of the VM; None for a resource that was stored
        under KubeVirtBMC's definition, which does not require it
    :param by_ref: whether KubeVirtBMC's field names the VM: the BMC then also
        serves what KubeVirtBMC's clients use
    :param auth: `Reference` of the Secret; None when the operator makes one
    :param ipmi: whether IPMI is served
    :param account_management: whether clients may create accounts
    :param redfish: `Redfish`
    :param service: `Service`
    :param route: `Route`, or None
    :param network_policy: `NetworkPolicy`
    :param refused_networks: those of its networks that Kubernetes refuses, so
        that clients there cannot connect
    :param media: `Media`
    :param host: `Host`
    :param run_strategy: or None for the emulator's default
    :param resources: dict of a container's name and its resources
    :param image: or None for the operator's
    :param node_selector: dict
    :param tolerations: tuple of dicts
    :param placement: see `shared.placement`; None for the operator's default
    :param deleting: whether the resource is being deleted
    """

    namespace: str
    name: str
    uid: str
    generation: int
    vm: Reference | None
    by_ref: bool = False
    auth: Reference | None = None
    ipmi: bool = True
    account_management: bool = True
    redfish: Redfish = Redfish()
    service: Service = Service()
    route: Route | None = None
    network_policy: NetworkPolicy = NetworkPolicy()
    refused_networks: tuple = ()
    media: Media = Media()
    host: Host = Host()
    run_strategy: str | None = None
    resources: dict = dataclasses.field(default_factory=dict)
    image: str | None = None
    node_selector: dict = dataclasses.field(default_factory=dict)
    tolerations: tuple = ()
    placement: str | None = None
    deleting: bool = False

    @property
    def http_beside_https(self):
        """Whether its Service has HTTP too: not outside of the cluster."""
        return (self.redfish.both and self.service.type == Service.type
                and self.service.redfish_port != HTTP_PORT)


def read(body):
    """Read a resource.

    :param body: dict, as the API has it
    :returns: `Bmc`
    """
    metadata, spec = body['metadata'], body.get('spec') or {}
    namespace = metadata['namespace']
    by_ref = bool((spec.get('virtualMachineRef') or {}).get('name'))
    redfish = _redfish(spec.get('redfish') or {}, by_ref)
    return Bmc(
        namespace=namespace,
        name=metadata['name'],
        uid=metadata['uid'],
        generation=metadata.get('generation', 0),
        vm=_reference(spec, namespace, 'virtualMachineRef', 'virtualMachine'),
        by_ref=by_ref,
        auth=_reference(spec, namespace, 'authSecretRef', 'authSecret'),
        ipmi=(spec.get('ipmi') or {}).get('enabled', True),
        account_management=(spec.get('accountManagement') or {}).get(
            'enabled', True),
        redfish=redfish,
        service=_service(spec.get('service') or {}, redfish.plain),
        route=_route(spec.get('route')),
        network_policy=_policy(spec.get('networkPolicy') or {}),
        refused_networks=_refused_networks(spec.get('networkPolicy') or {}),
        media=_media(spec.get('virtualMedia') or {}),
        host=_host(spec.get('bareMetalHost') or {}),
        run_strategy=spec.get('runStrategy'),
        resources=spec.get('resources') or {},
        image=spec.get('image'),
        node_selector=spec.get('nodeSelector') or {},
        tolerations=tuple(spec.get('tolerations') or ()),
        placement=spec.get('placement'),
        deleting='deletionTimestamp' in metadata,
    )


def _host(given):
    return Host(given.get('enabled', True), given.get('protocol') == 'IPMI')


def _reference(spec, namespace, *spellings):
    for spelling in spellings:
        found = spec.get(spelling)
        if found and found.get('name'):
            return Reference(found.get('namespace') or namespace,
                             found['name'])
    return None


def _redfish(given, by_ref):
    enabled, plain = given.get('enabled', True), given.get('plainHTTP')
    return Redfish(enabled=enabled, plain=bool(plain),
                   both=enabled and by_ref and plain is None,
                   secret=(given.get('tls') or {}).get('secretName'),
                   web_page=given.get('webPage', True))


def _service(given, plain):
    ports = given.get('ports') or {}
    node_ports = given.get('nodePorts') or {}
    return Service(
        type=given.get('type', 'ClusterIP'),
        load_balancer_class=given.get('loadBalancerClass'),
        annotations=given.get('annotations') or {},
        redfish_port=ports.get('redfish', HTTP_PORT if plain else 443),
        ipmi_port=ports.get('ipmi', IPMI_PORT),
        redfish_node_port=node_ports.get('redfish'),
        ipmi_node_port=node_ports.get('ipmi'))


def _route(given):
    if not given:
        return None
    return Route(given['termination'], given.get('annotations') or {},
                 given.get('labels') or {})


def _policy(given):
    return NetworkPolicy(
        enabled=given.get('enabled', False),
        networks=tuple(filter(is_network, given.get('allowedCIDRs') or ())),
        namespaces=tuple(given.get('allowedNamespaces') or ()))


def _refused_networks(given):
    """:returns: tuple of texts; () without a NetworkPolicy"""
    if not given.get('enabled', False):
        return ()
    return tuple(text for text in given.get('allowedCIDRs') or ()
                 if not is_network(text))


def is_network(text):
    """Tell whether a NetworkPolicy may have a CIDR.

    Not with bits behind the prefix, leading zeros or IPv4 in IPv6:
    ``IsValidCIDRForLegacyField`` of Kubernetes 1.36 and later. The definition
    accepts some of these, and did so of all when older BMCs were stored.

    :param text: such as ``10.0.0.0/8``
    """
    address, _, length = text.partition('/')
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        return False
    return bool('%' not in address
                and re.fullmatch('0|[1-9][0-9]{0,2}', length)
                and not (network.version == 6
                         and network.network_address.ipv4_mapped))


def _media(given):
    return Media(storage_class=given.get('storageClassName'),
                 access_mode=given.get('accessMode'),
                 mode=given.get('mode'),
                 default_size=given.get('defaultSize'),
                 allowed_hosts=tuple(given.get('allowedHosts') or ()),
                 allow_loopback=given.get('allowLoopback', False),
                 verify=given.get('verifyCertificate', True))


def wrong_hosts(bmc):
    """Check ``virtualMedia.allowedHosts``, which the definition cannot.

    An emulator does not start with an invalid list. A condition reports this
    more clearly than a pod that crashes repeatedly.

    :param bmc: a `Bmc`
    :returns: a sentence without full stop; '' if nothing is wrong
    """
    for entry in bmc.media.allowed_hosts:
        try:
            url_policy.network(entry)
        except ValueError as e:
            return str(e)
    return ''
