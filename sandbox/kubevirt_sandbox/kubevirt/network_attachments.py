# SPDX-License-Identifier: Apache-2.0
"""NetworkAttachmentDefinitions of Multus, and which of them a VMI uses.

The configuration in ``spec.config`` is kept; no network plugins run here. See
:mod:`kubevirt_sandbox.qemu.networks` for what QEMU guests have of it.

Source: the CRD of Multus 4.2; pkg/network/multus (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.kubevirt import paths
from kubevirt_sandbox.kubevirt.schema import openapi

#: Annotation of a definition: the resource of a device plugin that each
#: interface takes from a node.
RESOURCE = 'k8s.v1.cni.cncf.io/resourceName'

KIND = kinds.Kind(
    'k8s.cni.cncf.io', 'v1', 'NetworkAttachmentDefinition',
    'network-attachment-definitions', 'network-attachment-definition',
    ('net-attach-def',), crd=True, schema=openapi.record(
        'A network that interfaces of pods can be attached to.', {
            'apiVersion': openapi.text(), 'kind': openapi.text(),
            'metadata': {'type': 'object'},
            'spec': openapi.record('Desired network.', {
                'config': openapi.text('CNI configuration as JSON.')})}))


class Missing(Exception):
    """A VMI has a network without a NetworkAttachmentDefinition."""


def reference(vmi, text):
    """Return (namespace, name) of the definition that a VMI refers to.

    :param vmi: the VMI.
    :param text: ``networkName`` of one of its networks.
    """
    namespace, slash, name = text.partition('/')
    return (namespace, name) if slash else (vmi['metadata']['namespace'], text)


def resources(store, vmi):
    """List the resources that the networks of a VMI need from its node.

    :param store: the store.
    :param vmi: the VMI.
    :returns: names, one for each interface that needs one.
    :raises Missing: a definition does not exist; the text is KubeVirt's.
    """
    found = []
    for network in paths.networks(vmi['spec']):
        text = paths.at(network, 'multus', 'networkName')
        if not text:
            continue
        namespace, name = reference(vmi, text)
        definition = store.find(KIND, namespace, name)
        if definition is None:
            raise Missing('failed to locate network attachment definition '
                          f'{namespace}/{name}')
        found.append((definition['metadata'].get('annotations') or {}).get(
            RESOURCE))
    return [name for name in found if name]
