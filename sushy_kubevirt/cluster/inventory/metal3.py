# SPDX-License-Identifier: Apache-2.0
"""``BareMetalHost`` objects of Metal3, to apply in the cluster's namespace.

They refer to Secrets of their own, which `metal3_secrets` makes:
baremetal-operator makes a host the owner of its Secret, so that the Secret is
deleted with the host.
"""

from __future__ import annotations

from sushy_kubevirt.cluster import bmcs
from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.machine import architecture

TEXT = 'BareMetalHost objects of Metal3, without their Secrets'


def make(wanted, owner):
    """Make the file.

    :param wanted: list of `nodes.Wanted`
    :param owner: the cluster, an `identity.owner`
    :returns: text, YAML
    """
    return documents(wanted, owner, _host)


def documents(wanted, owner, make_one):
    """Make a file of one object for each node.

    :param wanted: list of `nodes.Wanted`
    :param owner: the cluster, an `identity.owner`
    :param make_one: function of a `nodes.Wanted` and a namespace that returns
        the object, a dict
    :returns: text, YAML
    """
    import yaml
    namespace = owner.partition('/')[0]
    return yaml.safe_dump_all(
        [make_one(one, namespace) for one in wanted], sort_keys=False,
        explicit_start=True)


def secret_name(node):
    """:returns: name of the Secret with the credentials of a host

    :param node: name of the node
    """
    return node + '-host'


def _host(wanted, namespace):
    node = wanted.node
    spec = {'online': True, 'architecture': architecture.cpu_arch(
        node.type.architecture)}
    address = _boot_address(node)
    if address:
        spec['bootMACAddress'] = address
    if node.type.secure_boot:
        spec['bootMode'] = 'UEFISecureBoot'
    else:
        spec['bootMode'] = 'legacy' if node.type.boot_mode == 'bios' else (
            'UEFI')
    spec['bmc'] = {'address': _bmc_address(wanted),
                   'credentialsName': secret_name(node.name)}
    if node.type.driver == 'redfish' and not node.ironic.verify:
        spec['bmc']['disableCertificateVerification'] = True
    return {'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
            'metadata': {'name': node.name, 'namespace': namespace},
            'spec': spec}


def _boot_address(node):
    networks = node.ironic.pxe_networks
    return next((one.mac for one in node.interfaces
                 if networks is None or one.network.name in networks), None)


def _bmc_address(wanted):
    at = wanted.bmc
    if wanted.node.type.driver == 'ipmi':
        return 'ipmi://' + bmcs.host_and_port(
            at.address, at.ipmi_port, 623)
    kind = wanted.node.ironic.interfaces.get(
        'boot_interface', 'redfish-virtual-media')
    scheme = ('redfish-virtualmedia' if kind == 'redfish-virtual-media'
              else 'redfish')
    where = bmcs.host_and_port(at.address, at.redfish_port, 443)
    return f'{scheme}://{where}{nodes.SYSTEM_ID}'
