# SPDX-License-Identifier: Apache-2.0
"""Annotations, labels and finalizers that are stored in a cluster.

Each has one line: its name, the objects that have it, who writes it and when
it goes away. ``doc/source/reference/stored_names.rst`` is generated from it.
What the values mean is said where they are read: those of a BMC in
`machine.annotations`.
"""

from __future__ import annotations

import typing

#: Prefix of what BMCs write, and API groups of the operator and of the
#: command sushy-kubevirt-cluster, which prefix what these write.
BMC_PREFIX = 'sushy-kubevirt.openstack.org/'
OPERATOR_GROUP = 'bmc.kubevirt.io'
CLUSTER_GROUP = 'cluster.sushy-kubevirt.openstack.org'

ANNOTATION, LABEL, FINALIZER, TYPE_OF_SECRET = (
    'annotation', 'label', 'finalizer', 'type')


class StoredName(typing.NamedTuple):
    """Describes a name.

    :param kind: `ANNOTATION`, `LABEL`, `FINALIZER`, `TYPE_OF_SECRET`
    :param name: with its prefix
    :param objects: what has it
    :param writer: who writes it
    :param until: when it goes away, at the latest with its object
    """

    kind: str
    name: str
    objects: str
    writer: str
    until: str


#: All names, in the order of this module.
ALL: list[StoredName] = []

_ALWAYS = 'its object is deleted'


def _bmc(name: str, objects: str, until: str = _ALWAYS,
         kind: str = ANNOTATION) -> str:
    return _store(kind, BMC_PREFIX + name, objects, 'BMC', until)


def _operator(kind: str, name: str, objects: str, until: str = _ALWAYS,
              writer: str = 'operator') -> str:
    return _store(kind, f'{OPERATOR_GROUP}/{name}', objects, writer, until)


def _cluster(kind: str, name: str, objects: str, until: str = _ALWAYS) -> str:
    return _store(kind, f'{CLUSTER_GROUP}/{name}', objects,
                  'sushy-kubevirt-cluster', until)


def _store(kind: str, name: str, objects: str, writer: str,
           until: str) -> str:
    ALL.append(StoredName(kind, name, objects, writer, until))
    return name


BOOT = _bmc('boot', 'VM', 'no boot order and no override is in force')
BOOT_ONCE = _bmc(
    'boot-once', 'template of a VM, and so its VMIs',
    'a VMI with it has been assigned to a node, or the override is disabled')
BOOTLOADERS = _bmc('bootloaders', 'VM')
POD_INTERFACE = _bmc(
    'pod-interface', 'VM', 'the interface that a BMC added is removed')
RUN_STRATEGY = _bmc(
    'run-strategy', 'VM', 'the run strategy in it is restored')
RESTART = _bmc('restart', 'VM', 'the next VMI exists')
MEDIA = _bmc('media', 'VM', 'no medium is inserted and nothing is left of it')
MEDIA_LABEL = _bmc('media', 'DataVolume and Secret of a medium', kind=LABEL)
MEDIA_ATTEMPT = _bmc('media-attempt', 'DataVolume and Secret of a medium')
UPLOAD = _bmc('upload', 'DataVolume of an upload')
ATTRIBUTES = _bmc(
    'bios-attributes', 'VM', 'all attributes have their defaults')
ATTRIBUTES_BEFORE = _bmc(
    'bios-attributes-before', 'VM',
    'attributes are changed while another VMI or none runs')
INDICATOR = _bmc('indicator', 'VM', 'the indicator is off')
ASSET_TAG = _bmc('asset-tag', 'VM', 'the tag is empty')
CONTROLLER_NAME = _bmc('controller-name', 'VM', 'the name is empty')
SYSTEM_INFO = _bmc('system-info', 'VM', 'all parameters are empty')
EVENT = _bmc('event', 'Event of the log')
IMAGE_SERVER = _bmc('image-server', 'Secret with the login of an image server',
                    kind=TYPE_OF_SECRET)

BMC_NAME = _store(
    LABEL, 'kubevirt.io/virtualmachinebmc-name', 'objects of a BMC',
    'operator, as KubeVirtBMC', _ALWAYS)
VM_NAME = _store(
    LABEL, 'kubevirt.io/vm-name', 'Service <vm>-virtbmc',
    'operator, as KubeVirtBMC', _ALWAYS)
BMC_NAMESPACE = _operator(
    LABEL, 'namespace', 'objects of a BMC in the namespace of its VM')
SHARD = _operator(LABEL, 'shared', 'pods and objects of shared BMCs')
AUTO_CREATED = _operator(
    LABEL, 'auto-created', 'VirtualMachineBMC of a VM that is selected')
ELSEWHERE = _operator(
    FINALIZER, 'elsewhere', 'VirtualMachineBMC with a VM in another namespace',
    'its objects there are deleted')
HOST_FINALIZER = _operator(
    FINALIZER, 'host', 'VirtualMachineBMC with a BareMetalHost, and its VM',
    'the BareMetalHost is deleted')
APPLIED = _operator(ANNOTATION, 'applied', 'objects of a BMC')
UPGRADING = _operator(
    ANNOTATION, 'upgrading', 'Deployment that an upgrade has stopped',
    'its pod is ready again')
CONFIGURATION = _operator(ANNOTATION, 'configuration', 'pod of a BMC')
ACCOUNT = _operator(ANNOTATION, 'account', 'pod of BMCs')
LOAD_BALANCER_CLASS = _operator(
    ANNOTATION, 'load-balancer-class', 'Service of a BMC',
    'its BMC names no class')
ALLOW_FROM = _operator(
    ANNOTATION, 'allow-from', 'VM, and Secret with credentials',
    'its user removes it', writer='user')
SIZE_MARGIN = _store(
    ANNOTATION, f'{OPERATOR_GROUP}/datavolume-size-margin',
    'VirtualMachineBMC', 'user, as for KubeVirtBMC',
    'its user removes it')
VIRTUAL = _operator(LABEL, 'virtual', 'BareMetalHost')
BMC_UID = _operator(LABEL, 'bmc-uid', 'BareMetalHost and its Secret')
SECRET_VERSION = _operator(
    ANNOTATION, 'source-version', "BareMetalHost's Secret")
HAD_HOST = _operator(ANNOTATION, 'had-host', 'BareMetalHost of a claim')
HOST_MOVED = _operator(
    ANNOTATION, 'host-moved',
    'VirtualMachineBMC whose BareMetalHost was moved',
    'its user removes it, or the host is back')
SKIP_HOST = _operator(
    ANNOTATION, 'skip-host-deprovisioning', 'VirtualMachineBMC, VM',
    'its user removes it',
    writer='user, or operator for a host that cannot be detached')
CLAIM_TEMPLATE = _operator(
    ANNOTATION, 'claim-template', 'VM that is a template of claims',
    'its user removes it', writer='user')
CLAIM_LIMIT = _operator(
    ANNOTATION, 'claim-limit', 'VM that is a template of claims',
    'its user removes it', writer='user')
CLAIM_UID = _operator(LABEL, 'claim-uid', 'VM of a claim, and its BMC')
CLAIM = _operator(ANNOTATION, 'claim', 'VM of a claim')
CLAIM_SOURCE = _operator(ANNOTATION, 'claim-source', 'VM of a claim')
EXPIRES = _operator(
    ANNOTATION, 'expires', 'Secret of a kubeconfig for claims',
    writer='sushy-kubevirt-operator claim-kubeconfig')

CLUSTER = _cluster(LABEL, 'name', 'objects of a cluster file')
NODE = _cluster(LABEL, 'node', 'objects of a node')
TYPE = _cluster(LABEL, 'type', 'VM of a node')
HASH = _cluster(ANNOTATION, 'hash', 'objects of a cluster file')
DECLARED = _cluster(ANNOTATION, 'declared', 'objects of a cluster file')
USER = _cluster(
    ANNOTATION, 'user.', 'network definition that clusters share, for each '
    'cluster', 'the cluster is torn down')
