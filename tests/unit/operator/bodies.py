# SPDX-License-Identifier: Apache-2.0
"""Kubernetes objects as the API returns them: starting points for tests."""

import base64
import copy

from sushy_kubevirt.operator import spec

NAMESPACE, UID = 'lab', '6f1d'


def body(name='node', **fields):
    """Return a VirtualMachineBMC.

    :param fields: of its spec
    """
    return {'apiVersion': 'bmc.kubevirt.io/v1beta1',
            'kind': 'VirtualMachineBMC',
            'metadata': {'name': name, 'namespace': NAMESPACE, 'uid': UID,
                         'generation': 3},
            'spec': {'virtualMachine': {'name': 'vm'}, **fields}}


def by_ref(name='node', **fields):
    """Return a BMC whose VM is named in KubeVirtBMC's field."""
    made = body(name, virtualMachineRef={'name': 'vm'}, **fields)
    del made['spec']['virtualMachine']
    return made


def cross_namespace(**fields):
    """Return a BMC whose VM and Secret are in namespace ``far``."""
    return body(virtualMachine={'namespace': 'far', 'name': 'vm'},
                authSecret={'namespace': 'far', 'name': 'key'}, **fields)


def with_margin(text, **fields):
    """Return a BMC with the annotation for the size of its volumes."""
    made = body(**fields)
    made['metadata']['annotations'] = {
        'bmc.kubevirt.io/datavolume-size-margin': text}
    return made


def bmc(name='node', **fields):
    return spec.read(body(name, **fields))


def vm(namespace=NAMESPACE, **metadata):
    return {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'metadata': {'name': 'vm', 'namespace': namespace, 'uid': 'u-vm',
                         **metadata}}


def secret(namespace=NAMESPACE, name='key', annotations=None, **data):
    data = data or {'username': 'admin', 'password': 'a secret'}
    return {'metadata': {'name': name, 'namespace': namespace,
                         'annotations': annotations or {}},
            'data': {key: base64.b64encode(value.encode()).decode()
                     for key, value in data.items()}}


def service(type_='ClusterIP', address='10.0.0.7', ingress=(), ports=None):
    return {'spec': {'type': type_, 'clusterIP': address, 'ports': [
        {'name': name, 'port': port} for name, port in (
            ports or {'redfish': 443, 'ipmi': 623}).items()]},
        'status': {'loadBalancer': {'ingress': list(ingress)}}}


def account():
    return {'metadata': {'name': 'node-virtbmc', 'uid': 'u-account'}}


def deployment(image='virtbmc:1', **status):
    status = status or {'observedGeneration': 2, 'updatedReplicas': 1,
                        'readyReplicas': 1}
    return {'metadata': {'generation': 2},
            'spec': {'template': {'spec': {'containers': [
                {'image': image}]}}}, 'status': copy.deepcopy(status)}
