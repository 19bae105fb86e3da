# SPDX-License-Identifier: Apache-2.0
"""``BareMetalHost`` objects of Metal3, to apply in the cluster's namespace.

They refer to Secrets of their own, which `metal3_secrets` makes:
baremetal-operator makes a host the owner of its Secret, so that the Secret is
deleted with the host.
"""

from __future__ import annotations

from collections import abc
import typing

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.machine import architecture
from sushy_kubevirt.remote import endpoint

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

TEXT = 'BareMetalHost objects of Metal3, without their Secrets'


def make(declared: list[nodes.Wanted], owner: str) -> str:
    """Make the file.

    :param owner: the cluster, an `identity.owner`
    :returns: YAML
    """
    return documents(declared, owner, _host)


def documents(declared: list[nodes.Wanted], owner: str,
              make_object: abc.Callable[[nodes.Wanted, str], objects.Json]
              ) -> str:
    """Make a file of one object for each node.

    :param owner: the cluster, an `identity.owner`
    :param make_object: function of a node and the namespace
    :returns: YAML
    :raises: `problems.Unsuitable` with nodes that Metal3 cannot switch
    """
    from sushy_kubevirt.kube import yaml_writer
    for wanted in declared:
        if wanted.node.outlet:
            raise problems.Unsuitable(
                f'{wanted.node.name} has the ironic_driver snmp, but Metal3 '
                'manages hosts by Redfish or IPMI')
    namespace = owner.partition('/')[0]
    return yaml_writer.dump(
        [make_object(wanted, namespace) for wanted in declared],
        explicit_start=True)


def secret_name(node: str) -> str:
    """Return the name of the Secret with the credentials of a host.

    :param node: name of the node
    """
    return node + '-host'


def _host(wanted: nodes.Wanted, namespace: str) -> objects.Json:
    node = wanted.node
    spec: objects.Json = {
        'online': True,
        'architecture': architecture.cpu_arch(node.type.architecture)}
    address = _boot_address(wanted)
    if address:
        spec['bootMACAddress'] = address
    if node.type.secure_boot:
        spec['bootMode'] = 'UEFISecureBoot'
    else:
        spec['bootMode'] = 'legacy' if node.type.boot_mode == 'bios' else (
            'UEFI')
    spec['bmc'] = {'address': _bmc_address(wanted),
                   'credentialsName': secret_name(node.name)}
    if node.type.driver == 'redfish' and not wanted.ironic.verify:
        spec['bmc']['disableCertificateVerification'] = True
    return {'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
            'metadata': {'name': node.name, 'namespace': namespace},
            'spec': spec}


def _boot_address(wanted: nodes.Wanted) -> str | None:
    networks = wanted.ironic.pxe_networks
    return next((interface.mac for interface in wanted.node.interfaces
                 if networks is None or interface.network.name in networks),
                None)


def _bmc_address(wanted: nodes.Wanted) -> str:
    bmc = wanted.bmc
    if wanted.node.type.driver == 'ipmi':
        return 'ipmi://' + endpoint.host_and_port(
            bmc.address, bmc.ipmi_port, 623)
    kind = wanted.ironic.interfaces.get(
        'boot_interface', 'redfish-virtual-media')
    scheme = ('redfish-virtualmedia' if kind == 'redfish-virtual-media'
              else 'redfish')
    server = endpoint.host_and_port(bmc.address, bmc.redfish_port, 443)
    return f'{scheme}://{server}{nodes.SYSTEM_ID}'
