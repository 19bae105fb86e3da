# SPDX-License-Identifier: Apache-2.0
"""Checks the way from a client to a BMC: endpoints, policies, protocols."""

from __future__ import annotations

from collections import abc
import os
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import kinds
from sushy_kubevirt.operator.diagnose import manifests
from sushy_kubevirt.operator.diagnose import probes
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network
from sushy_kubevirt.operator import routes

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.diagnose import bmc as bmcs
    from sushy_kubevirt.operator.diagnose import reader as readers

#: Label of an EndpointSlice: name of its Service.
_SERVICE = 'kubernetes.io/service-name'

#: Names in findings, and the port of a Route.
_REDFISH, _ROUTE = 'Redfish', 'Redfish by the Route'
_HTTPS = 443

#: Seconds for each protocol.
_SECONDS = 5


def backends(reader: readers.Reader,
             bmc: bmcs.Bmc) -> abc.Iterator[findings.Finding]:
    """Check whether the Service has a ready pod.

    :param bmc: has a Service
    """
    name, namespace = naming.base(bmc.spec.name), bmc.spec.namespace
    slices = reader.list(kinds.ENDPOINT_SLICE, namespace, f'{_SERVICE}={name}')
    # "ready" that is missing means unknown, which counts as ready.
    addresses = {address for slice_ in slices
                 for endpoint in slice_.get('endpoints') or ()
                 if (endpoint.get('conditions') or {}).get(
                     'ready') is not False
                 for address in endpoint.get('addresses') or ()}
    if addresses:
        yield findings.ok(
            'EndpointsReady', f'Service {name} forwards to '
            f"{', '.join(sorted(addresses))}.")
        return
    yield findings.problem(
        'NoReadyEndpoint', f'Service {name} has no ready pod behind it.',
        f'kubectl --namespace {namespace} describe pods --selector '
        f'{stored_names.BMC_NAME}={naming.label(bmc.spec.name)} shows why.')


def protocols(reader: readers.Reader, bmc: bmcs.Bmc, system_namespace: str
              ) -> abc.Iterator[findings.Finding]:
    """Check whether Redfish and IPMI answer at the address for clients.

    :param bmc: has a Service; gets the certificate that Redfish serves
    :param system_namespace: the operator's, for advice
    """
    service = bmc.service
    assert service is not None
    address, key = endpoints.host(bmc.spec, service), 'port'
    if bmc.spec.service.type == network.NODE_PORT and not _in_cluster():
        node = _node(reader)
        address, key = (node, 'nodePort') if node else (address, key)
    ports = {port['name']: port[key] for port in service['spec']['ports']
             if port.get(key)}
    # With whether it serves HTTPS; None for IPMI.
    servers: list[tuple[str, str, int, bool | None]] = [
        (_ROUTE, host, _HTTPS, True) for host in routes.hosts(
            bmc.verdict.route if bmc.verdict else None)]
    # Without an address, a condition says so.
    if address and bmc.spec.redfish.enabled and deployments.REDFISH in ports:
        servers.insert(0, (_REDFISH, address, ports[deployments.REDFISH],
                           not bmc.spec.redfish.plain))
    if address and bmc.spec.ipmi and deployments.IPMI in ports:
        servers.append(('IPMI', address, ports[deployments.IPMI], None))
    for name, host, port, tls in servers:
        server = f'{name} at {endpoints.bracketed(host)}:{port}'
        reader.progress(f'Connecting to {server}')
        seconds = reader.remaining(_SECONDS)
        answer = (probes.ipmi(host, port, seconds) if tls is None
                  else probes.redfish(host, port, tls, seconds))
        if name == _REDFISH:
            bmc.served = answer.certificate
        yield _judge(reader, bmc, system_namespace, server, answer)


def _in_cluster() -> bool:
    return 'KUBERNETES_SERVICE_HOST' in os.environ


def _node(reader: readers.Reader) -> str | None:
    """Return the InternalIP of a node that is ready; None if none is known."""
    try:
        nodes = reader.list(kinds.NODE)
    except errors.MachineError:
        return None
    return next((
        address['address'] for node in nodes if objects.holds(node, 'Ready')
        for address in node['status'].get('addresses') or ()
        if address.get('type') == 'InternalIP'), None)


def _judge(reader: readers.Reader, bmc: bmcs.Bmc, system_namespace: str,
           server: str, answer: probes.Answer) -> findings.Finding:
    if not answer.fault:
        return findings.ok('Answers', f'{server} answers.')
    if (not answer.reached and not server.startswith(_ROUTE)
            and bmc.spec.service.type != network.LOAD_BALANCER
            and not _in_cluster()):
        return findings.unknown(
            f'{server} is not reached from here ({answer.fault}), '
            'which is usual for an address of the cluster or of a node.',
            'Run this command in the cluster, for instance: kubectl '
            f'--namespace {system_namespace} exec deployment/{naming.OPERATOR}'
            f' -- {naming.OPERATOR} diagnose '
            f'{bmc.spec.namespace}/{bmc.spec.name}')
    policies = _policies(reader, bmc)
    examples = manifests.where('samples/network-policies')
    return findings.problem(
        'NoAnswer' if answer.reached else 'NotReached',
        f'{server} does not answer: {answer.fault}.',
        (f"NetworkPolicies limit who may reach its pod: {', '.join(policies)}."
         f' Check that they admit this client (examples: {examples}). '
         if policies else
         'Check NetworkPolicies, firewalls and the load balancer. ')
        + f'The log of the pod: kubectl --namespace {bmc.spec.namespace} logs '
        f"deployment/{_name(bmc)} --all-containers")


def _name(bmc: bmcs.Bmc) -> str:
    """Return the name of the Deployment of a BMC's pod."""
    return bmc.deployment['metadata']['name'] if bmc.deployment else (
        naming.base(bmc.spec.name))


def _policies(reader: readers.Reader, bmc: bmcs.Bmc) -> list[str]:
    """List the NetworkPolicies for connections to a BMC's pod."""
    try:
        policies = reader.list(bmc_resources.POLICY, bmc.spec.namespace)
    except errors.MachineError:
        return []
    deployment = bmc.deployment
    labels = (deployment or {}).get('spec', {}).get('template', {}).get(
        'metadata', {}).get('labels') or naming.labels(bmc.spec.name)
    return sorted(
        policy['metadata']['name'] for policy in policies
        if 'Ingress' in (policy['spec'].get('policyTypes') or ('Ingress',))
        and selects(policy['spec'].get('podSelector') or {}, labels))


def selects(selector: objects.Json, labels: abc.Mapping[str, str]) -> bool:
    """Tell whether a label selector matches.

    :param selector: a ``LabelSelector``
    """
    for key, value in (selector.get('matchLabels') or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get('matchExpressions') or ():
        has = expression['key'] in labels
        among = has and labels[expression['key']] in (
            expression.get('values') or ())
        if not {'In': among, 'NotIn': not among, 'Exists': has,
                'DoesNotExist': not has}.get(expression['operator'], True):
            return False
    return True
