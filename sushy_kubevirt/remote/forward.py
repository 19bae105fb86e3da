# SPDX-License-Identifier: Apache-2.0
"""The way to a BMC through the API server: its Service, then a pod."""

from __future__ import annotations

import typing

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import naming
from sushy_kubevirt.remote import endpoint

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client
    from sushy_kubevirt.kube import portforward

#: Name of the port of the Service.
_REDFISH = 'redfish'


def connect(client: client.Client, namespace: str,
            name: str) -> portforward.Connection:
    """Connect to the Redfish port of a BMC.

    :param name: of the BMC
    :raises: `endpoint.BmcUnavailable`; `errors.MachineError`
    """
    try:
        spec = client.get(
            bmc_resources.SERVICE, namespace, naming.base(name))['spec']
    except errors.ObjectNotFound as error:
        raise endpoint.BmcUnavailable(
            name, f'has no Service: {error}') from error
    target = next((port['targetPort'] for port in spec['ports']
                   if port['name'] == _REDFISH), None)
    if target is None:
        raise endpoint.BmcUnavailable(
            name, 'its Service has no port for Redfish')
    selector = ','.join(f'{key}={value}' for key, value
                        in (spec.get('selector') or {}).items())
    pods = [pod for items, _ in client.pages(
        api_resources.POD, namespace, selector) for pod in items]
    for pod in pods:
        if objects.holds(pod, 'Ready') and not pod['metadata'].get(
                'deletionTimestamp'):
            return client.port_forward(
                namespace, pod['metadata']['name'], _number(pod, target))
    raise endpoint.BmcUnavailable(
        name, f'none of its {len(pods)} pods is ready: see "kubectl get pods '
        f'--namespace {namespace} --selector {selector}"')


def _number(pod: objects.Json, target: str | int) -> int:
    """Return the port of the pod that a Service's ``targetPort`` means."""
    if isinstance(target, int):
        return target
    return next(port['containerPort']
                for container in pod['spec']['containers']
                for port in container.get('ports') or ()
                if port.get('name') == target)
