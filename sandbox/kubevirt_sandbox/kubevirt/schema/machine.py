# SPDX-License-Identifier: Apache-2.0
"""Schemas of VirtualMachine, VirtualMachineInstance and KubeVirt."""

from kubevirt_sandbox.kubevirt.schema import domain
from kubevirt_sandbox.kubevirt.schema import openapi
from kubevirt_sandbox.kubevirt.schema import volumes


def _probe(description):
    return openapi.record(description, {
        'exec': openapi.anything('A command in the guest.'),
        'guestAgentPing': openapi.anything('The guest agent answers.'),
        'httpGet': openapi.anything('An HTTP request.'),
        'tcpSocket': openapi.anything('A TCP connection.'),
        **{key: openapi.integer() for key in (
            'initialDelaySeconds', 'timeoutSeconds', 'periodSeconds',
            'successThreshold', 'failureThreshold')}})


NETWORK = openapi.record('A network to be on.', {
    'name': openapi.text('The card of the same name is on it.'),
    'pod': openapi.record('The network of the pods.', {
        'vmNetworkCIDR': openapi.text(), 'vmIPv6NetworkCIDR': openapi.text()}),
    'multus': openapi.record('A network of Multus.', {
        'networkName': openapi.text('NetworkAttachmentDefinition.'),
        'default': openapi.flag('Instead of the pod network.'),
    }, required=('networkName',)),
    'resourceClaim': openapi.anything('A network out of a resource claim.'),
}, required=('name',))


def _credential(methods):
    return openapi.record('One kind of access.', {
        'source': openapi.record('Where it is from.',
                                 {'secret': openapi.record(
                                     'A Secret of the namespace.',
                                     {'secretName': openapi.text()},
                                     required=('secretName',))}),
        'propagationMethod': openapi.record(
            'How it is propagated to the guest.', {
                'qemuGuestAgent': openapi.record('By the guest agent.', {
                    'users': openapi.strings('Users that get it.')}),
                **methods}),
    }, required=('source', 'propagationMethod'))


CREDENTIAL = openapi.record('A key or a password for the guest.', {
    'sshPublicKey': _credential({'noCloud': openapi.anything('By cloud-init.'),
                                 'configDrive': openapi.anything(
                                     'By cloud-init.')}
                                ),
    'userPassword': _credential({})})

DNS = openapi.record('DNS of the pod.', {
    'nameservers': openapi.strings('Addresses.'),
    'searches': openapi.strings('Domains.'),
    'options': openapi.many(openapi.record('An option of the resolver.', {
        'name': openapi.text(), 'value': openapi.Node(type='string')}))})

METADATA = openapi.anything('Labels and annotations of the instance.',
                            struct=True, nullable=True)
METADATA['properties'] = {'labels': openapi.labels(),
                          'annotations': openapi.labels()}

VMI_SPEC = openapi.record('Desired state of the instance.', {
    'domain': domain.DOMAIN,
    'networks': openapi.many(NETWORK, 'The networks that its cards are on.',
                             256),
    'volumes': openapi.many(volumes.VOLUME, 'What its disks show.', 256),
    'terminationGracePeriodSeconds': openapi.integer(
        'How long the guest may take to shut down, in seconds.', 64,
        pointer=True),
    'accessCredentials': openapi.many(CREDENTIAL,
                                      'Keys and passwords for the guest.',
                                      256),
    'affinity': openapi.anything('Nodes that it likes.'),
    'architecture': openapi.text('amd64, arm64 or s390x.'),
    'dnsConfig': DNS,
    'dnsPolicy': openapi.text('DNS policy of the pod.'),
    'evictionStrategy': openapi.choice(
        'What happens when its node is drained.', 'None', 'LiveMigrate',
        'LiveMigrateIfPossible', 'External'),
    'hostname': openapi.text('The host name; the name if not set.'),
    'livenessProbe': _probe('Whether the guest lives.'),
    'readinessProbe': _probe('Whether the guest is ready.'),
    'nodeSelector': openapi.labels('Labels that its node must have.'),
    'priorityClassName': openapi.text('The priority of the pod.'),
    'resourceClaims': openapi.many(openapi.anything()),
    'schedulerName': openapi.text('Who finds the node.'),
    'serviceAccountName': openapi.text('The account of the pod.'),
    'startStrategy': openapi.choice('Paused: start with the CPUs stopped.',
                                    'Paused'),
    'subdomain': openapi.text('The sub-domain of the host name.'),
    'tolerations': openapi.many(openapi.anything(),
                                'Taints that it tolerates.'),
    'topologySpreadConstraints': openapi.many(openapi.anything()),
    'utilityVolumes': openapi.many(openapi.anything()),
}, required=('domain',), struct=True)
# KubeVirt's type is a pointer to any string; admission validates the value.
for _field in ('evictionStrategy', 'startStrategy'):
    del VMI_SPEC['properties'][_field]['enum']

VM_SPEC = openapi.record('Desired state of the machine.', {
    'runStrategy': openapi.Node(type='string', description=(
        'When the machine shall run: Always, RerunOnFailure, Manual, Once '
        'or Halted.')),
    'running': openapi.boolean('Deprecated, runStrategy is its successor: run '
                               'always, or not.'),
    'template': openapi.record('The instance that is made when it runs.', {
        'metadata': METADATA,
        'spec': VMI_SPEC}),
    'dataVolumeTemplates': openapi.many(
        volumes.DATA_VOLUME_TEMPLATE, 'DataVolumes that are made with it.'),
    'instancetype': openapi.anything('An instance type to take sizes from.'),
    'preference': openapi.anything('A preference to take devices from.'),
    'updateVolumesStrategy': openapi.Node(
        type='string', description='Replacement or Migration.'),
}, required=('template',), struct=True)


def _whole(description, spec, status):
    return openapi.record(description, {
        'apiVersion': {'type': 'string', 'description': 'kubevirt.io/v1'},
        'kind': {'type': 'string'},
        'metadata': {'type': 'object'},
        'spec': spec, 'status': status}, required=('spec',))


def _condition():
    stamp = openapi.Node(type='string', format='date-time', nullable=True)
    return openapi.record('A fact about the object.', {
        'type': openapi.text(),
        'status': openapi.text('True, False or Unknown.'),
        'reason': openapi.text('One word.'),
        'message': openapi.text('A sentence.'),
        'lastProbeTime': stamp, 'lastTransitionTime': stamp,
    }, required=('type', 'status'))


def _status(description, **properties):
    node = openapi.anything(description)
    node['properties'] = {
        'conditions': openapi.many(_condition(), 'Facts about it.'),
        **properties}
    node['nullable'] = True
    return node


VM = _whole(
    'A VirtualMachine: the template of an instance and the wish that it '
    'runs or not.', VM_SPEC,
    _status('Current state.',
            created=openapi.flag('An instance exists.'),
            ready=openapi.flag('The instance is ready.'),
            printableStatus=openapi.text('The state in one word.'),
            runStrategy=openapi.text(
                'The last run strategy that was applied.'),
            stateChangeRequests=openapi.many(openapi.record(
                'A start or a stop.', {
                    'action': openapi.text('Start or Stop.'),
                    'data': openapi.labels(),
                    'uid': openapi.text('The instance to stop.'),
                }, required=('action',)), 'Pending requests.')))

VMI = _whole(
    'A VirtualMachineInstance: a machine that runs, or is about to.',
    VMI_SPEC,
    _status('Current state.',
            phase=openapi.text('Pending, Scheduling, Scheduled, Running, '
                               'Succeeded or Failed.'),
            nodeName=openapi.text('Node of the instance.'),
            interfaces=openapi.many(openapi.anything(),
                                    'Current network interfaces.'),
            volumeStatus=openapi.many(openapi.anything(),
                                      'Current volumes.')))

KUBEVIRT = _whole(
    'The installation of KubeVirt in the cluster.',
    openapi.record('Desired state of KubeVirt.', {
        'configuration': openapi.record('Configuration of KubeVirt.', {
            'developerConfiguration': openapi.record(
                'Feature gates and such.', {
                    'featureGates': openapi.strings('Features that are on.'),
                    'disabledFeatureGates': openapi.strings(
                        'Features that are off though they are beta.'),
                }, **{'x-kubernetes-preserve-unknown-fields': True}),
        }, struct=True, **{'x-kubernetes-preserve-unknown-fields': True}),
    }, struct=True, **{'x-kubernetes-preserve-unknown-fields': True}),
    _status('Current state of KubeVirt.',
            phase=openapi.text('Deployed when KubeVirt is installed.'),
            observedKubeVirtVersion=openapi.text('Its version.'),
            operatorVersion=openapi.text('The version of its operator.')))
