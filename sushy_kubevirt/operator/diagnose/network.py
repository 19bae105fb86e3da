# SPDX-License-Identifier: Apache-2.0
"""Checks the way from a client to a BMC: endpoints, policies, protocols."""

from __future__ import annotations

import os

from sushy_kubevirt.kube import errors
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

#: Label of an EndpointSlice: name of its Service.
_SERVICE = 'kubernetes.io/service-name'

#: Name of a Route in findings, and its port.
_ROUTE = 'Redfish by the Route'
_HTTPS = 443

#: Seconds for each protocol.
_SECONDS = 5


def backends(reader, bmc):
    """Check whether the Service has a ready pod.

    :param reader: a `reader.Reader`
    :param bmc: a `bmc.Bmc` with a Service
    :returns: iterator of `findings.Finding`
    """
    name, namespace = naming.base(bmc.spec.name), bmc.spec.namespace
    slices = reader.list(kinds.ENDPOINT_SLICE, namespace, f'{_SERVICE}={name}')
    # "ready" that is missing means unknown, which counts as ready.
    found = {address for one in slices for end in one.get('endpoints') or ()
             if (end.get('conditions') or {}).get('ready') is not False
             for address in end.get('addresses') or ()}
    if found:
        yield findings.ok(
            bmc.area, 'EndpointsReady', f'Service {name} forwards to '
            f"{', '.join(sorted(found))}.")
        return
    yield findings.problem(
        bmc.area, 'NoReadyEndpoint',
        f'Service {name} has no ready pod behind it.',
        f'kubectl --namespace {namespace} describe pods --selector '
        f'{naming.LABEL}={naming.label(bmc.spec.name)} shows why.')


def protocols(reader, bmc, system_namespace, take, progress):
    """Check whether Redfish and IPMI answer at the address for clients.

    :param reader: a `reader.Reader`
    :param bmc: a `bmc.Bmc` with a Service
    :param system_namespace: the operator's, for advice
    :param take: function that is called with the certificate that Redfish
        serves, DER, if there is one
    :param progress: function of a sentence, called before a slow step
    :returns: iterator of `findings.Finding`
    """
    def redfish(name, host, port, tls):
        what = f'{name} at {endpoints.bracketed(host)}:{port}'
        progress(f'Connecting to {what}')
        answer = probes.redfish(host, port, tls, reader.remaining(_SECONDS))
        return answer, _judge(reader, bmc, system_namespace, what, answer)

    at, key = endpoints.host(bmc.spec, bmc.service), 'port'
    if bmc.spec.service.type == network.NODE_PORT and not _in_cluster():
        node = _node(reader)
        at, key = (node, 'nodePort') if node else (at, key)
    ports = {one['name']: one[key] for one in bmc.service['spec']['ports']
             if one.get(key)}
    # Without an address, a condition says so.
    if at and bmc.spec.redfish.enabled and deployments.REDFISH in ports:
        port, tls = ports[deployments.REDFISH], not bmc.spec.redfish.plain
        answer, finding = redfish('Redfish', at, port, tls)
        if answer.certificate:
            take(answer.certificate)
        yield finding
    for host in routes.hosts(bmc.seen and bmc.seen.bmc_state.route):
        yield redfish(_ROUTE, host, _HTTPS, True)[1]
    if at and bmc.spec.ipmi and deployments.IPMI in ports:
        port = ports[deployments.IPMI]
        what = f'IPMI at {endpoints.bracketed(at)}:{port}'
        progress(f'Connecting to {what}')
        yield _judge(reader, bmc, system_namespace, what, probes.ipmi(
            at, port, reader.remaining(_SECONDS)))


def _in_cluster() -> bool:
    return 'KUBERNETES_SERVICE_HOST' in os.environ


def _node(reader):
    """:returns: InternalIP of a node that is ready; None if none is known"""
    try:
        nodes = reader.list(kinds.NODE)
    except errors.MachineError:
        return None
    for status in (one.get('status') or {} for one in nodes):
        if any(one.get('type') == 'Ready' and one.get('status') == 'True'
               for one in status.get('conditions') or ()):
            for one in status.get('addresses') or ():
                if one.get('type') == 'InternalIP':
                    return one['address']
    return None


def _judge(reader, bmc, system_namespace, what, answer):
    if not answer.fault:
        return findings.ok(bmc.area, 'Answers', f'{what} answers.')
    if (not answer.reached and not what.startswith(_ROUTE)
            and bmc.spec.service.type != network.LOAD_BALANCER
            and not _in_cluster()):
        return findings.unknown(
            bmc.area, f'{what} is not reached from here ({answer.fault}), '
            'which is usual for an address of the cluster or of a node.',
            'Run this command in the cluster, for instance: kubectl '
            f'--namespace {system_namespace} exec deployment/{naming.OPERATOR}'
            f' -- {naming.OPERATOR} diagnose '
            f'{bmc.spec.namespace}/{bmc.spec.name}')
    policies = _policies(reader, bmc)
    examples = manifests.where('samples/network-policies')
    return findings.problem(
        bmc.area, 'NoAnswer' if answer.reached else 'NotReached',
        f'{what} does not answer: {answer.fault}.',
        (f"NetworkPolicies limit who may reach its pod: {', '.join(policies)}."
         f' Check that they admit this client (examples: {examples}). '
         if policies else
         'Check NetworkPolicies, firewalls and the load balancer. ')
        + f'The log of the pod: kubectl --namespace {bmc.spec.namespace} logs '
        f"deployment/{_name(bmc)} --all-containers")


def _name(bmc):
    """:returns: name of the Deployment of a BMC's pod"""
    return bmc.deployment['metadata']['name'] if bmc.deployment else (
        naming.base(bmc.spec.name))


def _policies(reader, bmc):
    """List the NetworkPolicies for connections to a BMC's pod."""
    try:
        found = reader.list(bmc_resources.POLICY, bmc.spec.namespace)
    except errors.MachineError:
        return []
    deployment = bmc.deployment
    labels = (deployment or {}).get('spec', {}).get('template', {}).get(
        'metadata', {}).get('labels') or naming.labels(bmc.spec.name)
    return sorted(
        one['metadata']['name'] for one in found
        if 'Ingress' in (one['spec'].get('policyTypes') or ('Ingress',))
        and selects(one['spec'].get('podSelector') or {}, labels))


def selects(selector, labels) -> bool:
    """Tell whether a label selector matches.

    :param selector: dict, a ``LabelSelector``
    :param labels: dict
    """
    for key, value in (selector.get('matchLabels') or {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get('matchExpressions') or ():
        has = one['key'] in labels
        among = has and labels[one['key']] in (one.get('values') or ())
        if not {'In': among, 'NotIn': not among, 'Exists': has,
                'DoesNotExist': not has}.get(one['operator'], True):
            return False
    return True
