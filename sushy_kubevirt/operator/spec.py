# SPDX-License-Identifier: Apache-2.0
"""Reads a VirtualMachineBMC, in either spelling of its fields.

The CustomResourceDefinition has validated the resource, unless it was stored
under the definition of KubeVirtBMC, which has no required fields. Missing
fields get the defaults of the definition. Settings of the operator (images,
resources) are in `deployments.Defaults`.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import ipaddress
import re
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.machine import options

#: Ports of a BMC's Service that KubeVirtBMC's clients use.
HTTP_PORT, IPMI_PORT = 80, 623


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
    def display(self) -> bool:
        """Whether clients can see the VM's display."""
        return self.enabled and self.web_page


@dataclasses.dataclass(frozen=True)
class Service:
    """
    :param type: ``ClusterIP``, ``NodePort`` or ``LoadBalancer``
    :param load_balancer_class: or None
    :param redfish_port: TCP port
    :param ipmi_port: UDP port
    :param redfish_node_port: or None for what the cluster chooses
    :param ipmi_node_port: the same
    """

    type: str = 'ClusterIP'
    load_balancer_class: str | None = None
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    redfish_port: int = 443
    ipmi_port: int = IPMI_PORT
    redfish_node_port: int | None = None
    ipmi_node_port: int | None = None


@dataclasses.dataclass(frozen=True)
class Route:
    """
    :param termination: ``passthrough`` or ``reencrypt``
    """

    termination: str
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    labels: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class NetworkPolicy:
    """
    :param enabled: whether the BMC has a NetworkPolicy
    :param networks: CIDRs whose clients may connect, without those that
        Kubernetes refuses: see `refused_networks`
    :param namespaces: those whose pods may connect
    """

    enabled: bool = False
    networks: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Media:
    """See the options of virtual media in ``kubevirt.conf``; None and () are
    their defaults.

    :param ca_config_map: name of a ConfigMap of the BMC's namespace
    :param margin: text of the annotation `stored_names.SIZE_MARGIN`
    """

    storage_class: str | None = None
    access_mode: str | None = None
    mode: str | None = None
    default_size: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    allow_loopback: bool = False
    verify: bool = True
    volume_mode: str | None = None
    ca_config_map: str | None = None
    margin: str = '0'

    @property
    def size_margin(self) -> int | None:
        """The margin in per cent; None if it is invalid."""
        valid = re.fullmatch('[0-9]{1,4}', self.margin)
        margin = int(self.margin) if valid else -1
        return margin if margin in options.SIZE_MARGINS else None


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
    :param vm: the VM; its name is '' for a resource that was stored under
        KubeVirtBMC's definition, which does not require one
    :param by_ref: whether KubeVirtBMC's field names the VM: the BMC then also
        serves what KubeVirtBMC's clients use
    :param auth: the Secret; None when the operator makes one
    :param ipmi: whether IPMI is served
    :param ipmi_is_optional: whether it is served only if it can use the
        Secret: KubeVirtBMC's manifests serve Redfish alone unless they say so
    :param account_management: whether clients may create accounts
    :param refused_networks: those of its networks that Kubernetes refuses, so
        that clients there cannot connect
    :param run_strategy: or None for the emulator's default
    :param resources: by the container's name
    :param image: or None for the operator's
    :param placement: see `shared.placement`; None for the operator's default
    :param deleting: whether the resource is being deleted
    """

    namespace: str
    name: str
    uid: str
    generation: int
    vm: objects.ObjectKey
    by_ref: bool = False
    auth: objects.ObjectKey | None = None
    ipmi: bool = True
    ipmi_is_optional: bool = False
    account_management: bool = True
    redfish: Redfish = Redfish()
    service: Service = Service()
    route: Route | None = None
    network_policy: NetworkPolicy = NetworkPolicy()
    refused_networks: tuple[str, ...] = ()
    media: Media = Media()
    host: Host = Host()
    run_strategy: str | None = None
    resources: dict[str, objects.Json] = dataclasses.field(
        default_factory=dict)
    image: str | None = None
    node_selector: dict[str, str] = dataclasses.field(default_factory=dict)
    tolerations: tuple[objects.Json, ...] = ()
    placement: str | None = None
    deleting: bool = False

    @property
    def http_beside_https(self) -> bool:
        """Whether its Service has HTTP too: not outside of the cluster."""
        return (self.redfish.both and self.service.type == Service.type
                and self.service.redfish_port != HTTP_PORT)

    @property
    def key(self) -> objects.ObjectKey:
        """Of the resource."""
        return objects.ObjectKey(self.namespace, self.name)


def read(body: abc.Mapping[str, typing.Any]) -> Bmc:
    """Read a resource as the API has it."""
    metadata, spec = body['metadata'], body.get('spec') or {}
    namespace, host = metadata['namespace'], spec.get('bareMetalHost') or {}
    by_ref = bool((spec.get('virtualMachineRef') or {}).get('name'))
    redfish = _redfish(spec.get('redfish') or {}, by_ref)
    ipmi, by_ipmi = spec.get('ipmi') or {}, host.get('protocol') == 'IPMI'
    return Bmc(
        namespace=namespace,
        name=metadata['name'],
        uid=metadata['uid'],
        generation=metadata.get('generation', 0),
        vm=_reference(spec, namespace, 'virtualMachineRef', 'virtualMachine')
        or objects.ObjectKey(namespace, ''),
        by_ref=by_ref,
        auth=_reference(spec, namespace, 'authSecretRef', 'authSecret'),
        ipmi=ipmi.get('enabled', True),
        ipmi_is_optional=by_ref and 'enabled' not in ipmi and (
            redfish.enabled and not by_ipmi),
        account_management=(spec.get('accountManagement') or {}).get(
            'enabled', True),
        redfish=redfish,
        service=_service(spec.get('service') or {}, redfish.plain),
        route=_route(spec.get('route')),
        network_policy=_policy(spec.get('networkPolicy') or {}),
        refused_networks=_refused_networks(spec.get('networkPolicy') or {}),
        media=_media(spec, objects.annotations_of(body).get(
            stored_names.SIZE_MARGIN, '0')),
        host=Host(host.get('enabled', True), by_ipmi),
        run_strategy=spec.get('runStrategy'),
        resources=spec.get('resources') or {},
        image=spec.get('image'),
        node_selector=spec.get('nodeSelector') or {},
        tolerations=tuple(spec.get('tolerations') or ()),
        placement=spec.get('placement'),
        deleting='deletionTimestamp' in metadata,
    )


def _reference(spec: objects.Json, namespace: str,
               *spellings: str) -> objects.ObjectKey | None:
    for spelling in spellings:
        reference = spec.get(spelling)
        if reference and reference.get('name'):
            return objects.ObjectKey(
                reference.get('namespace') or namespace, reference['name'])
    return None


def _redfish(given: objects.Json, by_ref: bool) -> Redfish:
    enabled, plain = given.get('enabled', True), given.get('plainHTTP')
    return Redfish(enabled=enabled, plain=bool(plain),
                   both=enabled and by_ref and plain is None,
                   secret=(given.get('tls') or {}).get('secretName'),
                   web_page=given.get('webPage', True))


def _service(given: objects.Json, plain: bool) -> Service:
    ports = given.get('ports') or {}
    node_ports = given.get('nodePorts') or {}
    return Service(
        type=given.get('type', 'ClusterIP'),
        load_balancer_class=given.get('loadBalancerClass'),
        annotations=given.get('annotations') or {},
        labels=given.get('labels') or {},
        redfish_port=ports.get('redfish', HTTP_PORT if plain else 443),
        ipmi_port=ports.get('ipmi', IPMI_PORT),
        redfish_node_port=node_ports.get('redfish'),
        ipmi_node_port=node_ports.get('ipmi'))


def _route(given: objects.Json | None) -> Route | None:
    if not given:
        return None
    return Route(given['termination'], given.get('annotations') or {},
                 given.get('labels') or {})


def _policy(given: objects.Json) -> NetworkPolicy:
    return NetworkPolicy(
        enabled=given.get('enabled', False),
        networks=tuple(filter(is_network, given.get('allowedCIDRs') or ())),
        namespaces=tuple(given.get('allowedNamespaces') or ()))


def _refused_networks(given: objects.Json) -> tuple[str, ...]:
    """List the CIDRs of a NetworkPolicy that Kubernetes refuses."""
    if not given.get('enabled', False):
        return ()
    return tuple(text for text in given.get('allowedCIDRs') or ()
                 if not is_network(text))


def is_network(text: str) -> bool:
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


def _media(spec: objects.Json, margin: str) -> Media:
    """Read the section on media, and KubeVirtBMC's, which do not contradict
    each other.

    :param margin: see `Media`
    """
    given = spec.get('virtualMedia') or {}
    alias = (spec.get('redfish') or {}).get('virtualMedia') or {}
    storage, tls = alias.get('storage') or {}, alias.get('tls') or {}
    return Media(storage_class=given.get('storageClassName')
                 or storage.get('storageClassName')
                 or spec.get('storageClassName') or None,
                 volume_mode=given.get('volumeMode')
                 or storage.get('volumeMode'),
                 ca_config_map=(tls.get('caBundleConfigMapRef') or {}).get(
                     'name') or None,
                 margin=margin,
                 access_mode=given.get('accessMode'),
                 mode=given.get('mode'),
                 default_size=given.get('defaultSize'),
                 allowed_hosts=tuple(given.get('allowedHosts') or ()),
                 allow_loopback=given.get('allowLoopback', False),
                 verify=given.get('verifyCertificate', not tls.get(
                     'insecureSkipVerify', False)))


def wrong_hosts(bmc: Bmc) -> str:
    """Check ``virtualMedia.allowedHosts``, which the definition cannot.

    An emulator does not start with an invalid list. A condition reports this
    more clearly than a pod that crashes repeatedly.

    :returns: a sentence without full stop; '' if nothing is wrong
    """
    for entry in bmc.media.allowed_hosts:
        try:
            url_policy.network(entry)
        except ValueError as e:
            return str(e)
    return ''
