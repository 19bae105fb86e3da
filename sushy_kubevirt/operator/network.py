# SPDX-License-Identifier: Apache-2.0
"""The Services and the NetworkPolicy of a BMC."""

from __future__ import annotations

from collections import abc
import dataclasses
import ipaddress

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator.shared import placement
from sushy_kubevirt.operator import spec

CLUSTER_IP, NODE_PORT, LOAD_BALANCER = (
    'ClusterIP', 'NodePort', 'LoadBalancer')

#: Annotation of a Service: networks that its load balancer admits.
_SOURCE_RANGES = 'service.beta.kubernetes.io/load-balancer-source-ranges'

#: Prefixes of labels and annotations that users cannot set: the operator's
#: own, and kubectl's, which contain the applied object.
_RESERVED_PREFIXES = naming.GROUP + '/', 'kubectl.kubernetes.io/'

#: Fields that the cluster sets, and that a replacement has to keep.
_ALLOCATED = ('clusterIP', 'clusterIPs', 'ipFamilies', 'ipFamilyPolicy',
              'healthCheckNodePort', 'loadBalancerClass', 'loadBalancerIP')

#: Ports of slot 0 of a shared pod, by the name of the Service's port.
_FIRST_PORTS = {deployments.REDFISH: placement.REDFISH_PORT,
                deployments.HTTP: placement.HTTP_PORT,
                deployments.IPMI: placement.IPMI_PORT}

#: Label of every namespace with its name.
_NAMESPACE = 'kubernetes.io/metadata.name'


def service(bmc: spec.Bmc, slot: placement.Slot | None = None) -> objects.Json:
    """Make the Service.

    :param slot: of the shared pod that it selects; None for a pod of the
        BMC's own
    """
    wanted = bmc.service
    ports = []
    if bmc.redfish.enabled:
        ports.append(_port(deployments.REDFISH, 'TCP', wanted.redfish_port,
                           wanted.redfish_node_port,
                           'http' if bmc.redfish.plain else 'https'))
    if bmc.http_beside_https:
        ports.append(_port(deployments.HTTP, 'TCP', spec.HTTP_PORT, None,
                           'http'))
    if bmc.ipmi:
        ports.append(_port(deployments.IPMI, 'UDP', wanted.ipmi_port,
                           wanted.ipmi_node_port))
    if slot is not None:
        for port in ports:
            port['targetPort'] = _FIRST_PORTS[port['name']] + slot.number
    metadata = naming.metadata(bmc, naming.base(bmc.name))
    metadata['labels'] = {**permitted(wanted.labels), **metadata['labels']}
    annotations = permitted(wanted.annotations)
    if _SOURCE_RANGES in annotations:
        annotations[_SOURCE_RANGES] = _ranges(annotations[_SOURCE_RANGES])
    if annotations:
        metadata['annotations'] = annotations
    service_spec: objects.Json = {
        'type': wanted.type, 'ports': ports,
        'selector': naming.selector(bmc.name) if slot is None
        else naming.shared_selector(slot.shard)}
    if wanted.type == LOAD_BALANCER and wanted.load_balancer_class:
        service_spec['loadBalancerClass'] = wanted.load_balancer_class
        metadata.setdefault('annotations', {})[
            stored_names.LOAD_BALANCER_CLASS] = wanted.load_balancer_class
    return {'apiVersion': 'v1', 'kind': 'Service', 'metadata': metadata,
            'spec': service_spec}


def _ranges(text: str) -> str:
    """Write networks without bits behind their prefixes, and IPv4 as such.

    Kubernetes 1.36 and later refuse others (``IsValidCIDRForLegacyField``);
    before, 10.0.0.1/8 meant 10.0.0.0/8, and so did ::ffff:10.0.0.1/104.

    :param text: networks, separated by commas
    :returns: the same; others than networks as they are, for an error message
        of the API server
    """
    try:
        return ','.join(str(_network(part.strip()))
                        for part in text.split(','))
    except ValueError:
        return text


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    network = ipaddress.ip_network(text, strict=False)
    mapped = network.network_address.ipv4_mapped if isinstance(
        network, ipaddress.IPv6Network) else None
    return ipaddress.ip_network(
        (mapped, network.prefixlen - 96)) if mapped else network


def permitted(wanted: abc.Mapping[str, str]) -> dict[str, str]:
    """Remove the labels or annotations that users cannot set."""
    return {name: value for name, value in wanted.items()
            if not name.startswith(_RESERVED_PREFIXES)}


def vm_service(bmc: spec.Bmc,
               slot: placement.Slot | None = None) -> objects.Json:
    """Make the Service with KubeVirtBMC's name and ports, in the cluster only.

    :param bmc: one for which there is a `naming.vm_service`
    :param slot: as in `service`
    """
    body = service(dataclasses.replace(bmc, service=spec.Service(
        labels=bmc.service.labels,
        redfish_port=spec.HTTP_PORT if bmc.redfish.plain else 443)), slot)
    metadata = body['metadata']
    metadata['name'] = naming.vm_service(bmc)
    metadata['labels'][stored_names.VM_NAME] = bmc.vm.name
    return body


def allocated(service: objects.Json, live: objects.Json) -> objects.Json:
    """Add the fields that the cluster has set to a Service.

    :param service: the desired Service
    :param live: the Service as the cluster has it
    """
    has = live['spec']
    merged = {name: has[name] for name in _ALLOCATED if name in has}
    merged.update(service['spec'])
    if merged['type'] != CLUSTER_IP and merged['type'] == has.get('type'):
        ports = {port.get('name'): port.get('nodePort')
                 for port in has.get('ports') or ()}
        merged['ports'] = [
            {'nodePort': ports[port['name']], **port}
            if ports.get(port['name']) else port for port in merged['ports']]
    return {**service, 'spec': merged}


def has_another_class(service: objects.Json, live: objects.Json) -> bool:
    """Tell whether a Service has to be recreated, as its class is immutable.

    :param service: the desired Service
    :param live: the Service as the cluster has it
    """
    if not service['spec']['type'] == live['spec'].get(
            'type') == LOAD_BALANCER:
        return False
    asked = service['spec'].get('loadBalancerClass')
    if asked:
        return live['spec'].get('loadBalancerClass') != asked
    return stored_names.LOAD_BALANCER_CLASS in (live['metadata'].get(
        'annotations') or {})


def _port(name: str, protocol: str, port: int, node_port: int | None,
          application: str | None = None) -> objects.Json:
    body: objects.Json = {'name': name, 'protocol': protocol, 'port': port,
                          'targetPort': name}
    if node_port:
        body['nodePort'] = node_port
    if application:
        body['appProtocol'] = application
    return body


def policy(bmc: spec.Bmc) -> objects.Json | None:
    """Make the NetworkPolicy.

    Probes come from the pod's node, which policies do not restrict.

    :returns: None if the BMC has none
    """
    wanted = bmc.network_policy
    if not wanted.enabled:
        return None
    ports = []
    if bmc.redfish.enabled:
        ports.append({'protocol': 'TCP', 'port': config_map.PORT})
    if bmc.redfish.both:
        ports.append({'protocol': 'TCP', 'port': config_map.HTTP_PORT})
    if bmc.ipmi:
        ports.append({'protocol': 'UDP', 'port': deployments.IPMI_PORT})
    return {
        'apiVersion': 'networking.k8s.io/v1', 'kind': 'NetworkPolicy',
        'metadata': naming.metadata(bmc, naming.base(bmc.name)),
        'spec': {
            'podSelector': {'matchLabels': naming.selector(bmc.name)},
            'policyTypes': ['Ingress'],
            'ingress': rules(wanted, ports)}}


def rules(wanted: spec.NetworkPolicy,
          ports: list[objects.Json]) -> list[objects.Json]:
    """Make the rules of a NetworkPolicy for a BMC."""
    peers: list[objects.Json] = [
        {'ipBlock': {'cidr': network}} for network in wanted.networks]
    peers += [{'namespaceSelector': {'matchLabels': {_NAMESPACE: name}}}
              for name in wanted.namespaces]
    # A rule without peers would allow all clients.
    return [{'from': peers, 'ports': ports}] if peers else []
