# SPDX-License-Identifier: Apache-2.0
"""Schemas of VirtualMachine, VirtualMachineInstance and KubeVirt."""

from kubevirt_sandbox.kubevirt.schema import domain
from kubevirt_sandbox.kubevirt.schema import openapi as o
from kubevirt_sandbox.kubevirt.schema import volumes


def _probe(description):
    return o.record(description, {
        'exec': o.anything('A command in the guest.'),
        'guestAgentPing': o.anything('The guest agent answers.'),
        'httpGet': o.anything('An HTTP request.'),
        'tcpSocket': o.anything('A TCP connection.'),
        **{key: o.integer() for key in (
            'initialDelaySeconds', 'timeoutSeconds', 'periodSeconds',
            'successThreshold', 'failureThreshold')}})


NETWORK = o.record('A network to be on.', {
    'name': o.text('The card of the same name is on it.'),
    'pod': o.record('The network of the pods.', {
        'vmNetworkCIDR': o.text(), 'vmIPv6NetworkCIDR': o.text()}),
    'multus': o.record('A network of Multus.', {
        'networkName': o.text('NetworkAttachmentDefinition.'),
        'default': o.flag('Instead of the pod network.'),
    }, required=('networkName',)),
    'resourceClaim': o.anything('A network out of a resource claim.'),
}, required=('name',))


def _credential(methods):
    return o.record('One kind of access.', {
        'source': o.record('Where it is from.', {'secret': o.record(
            'A Secret of the namespace.', {'secretName': o.text()},
            required=('secretName',))}),
        'propagationMethod': o.record('How it gets into the guest.', {
            'qemuGuestAgent': o.record('By the guest agent.', {
                'users': o.strings('Whose it is.')}), **methods}),
    }, required=('source', 'propagationMethod'))


CREDENTIAL = o.record('A key or a password for the guest.', {
    'sshPublicKey': _credential({'noCloud': o.anything('By cloud-init.'),
                                 'configDrive': o.anything('By cloud-init.')}
                                ),
    'userPassword': _credential({})})

DNS = o.record('DNS of the pod.', {
    'nameservers': o.strings('Addresses.'),
    'searches': o.strings('Domains.'),
    'options': o.many(o.record('An option of the resolver.', {
        'name': o.text(), 'value': o.Node(type='string')}))})

METADATA = o.anything('Labels and annotations of the instance.',
                      struct=True, nullable=True)
METADATA['properties'] = {'labels': o.labels(), 'annotations': o.labels()}

VMI_SPEC = o.record('What the instance shall be.', {
    'domain': domain.DOMAIN,
    'networks': o.many(NETWORK, 'The networks that its cards are on.', 256),
    'volumes': o.many(volumes.VOLUME, 'What its disks show.', 256),
    'terminationGracePeriodSeconds': o.integer(
        'How long the guest may take to shut down, in seconds.', 64,
        pointer=True),
    'accessCredentials': o.many(CREDENTIAL,
                                'Keys and passwords for the guest.', 256),
    'affinity': o.anything('Nodes that it likes.'),
    'architecture': o.text('amd64, arm64 or s390x.'),
    'dnsConfig': DNS,
    'dnsPolicy': o.text('DNS policy of the pod.'),
    'evictionStrategy': o.choice(
        'What happens when its node is drained.', 'None', 'LiveMigrate',
        'LiveMigrateIfPossible', 'External'),
    'hostname': o.text('The host name; the name if not set.'),
    'livenessProbe': _probe('Whether the guest lives.'),
    'readinessProbe': _probe('Whether the guest is ready.'),
    'nodeSelector': o.labels('Labels that its node must have.'),
    'priorityClassName': o.text('The priority of the pod.'),
    'resourceClaims': o.many(o.anything()),
    'schedulerName': o.text('Who finds the node.'),
    'serviceAccountName': o.text('The account of the pod.'),
    'startStrategy': o.choice('Paused: start with the CPUs stopped.',
                              'Paused'),
    'subdomain': o.text('The sub-domain of the host name.'),
    'tolerations': o.many(o.anything(), 'Taints that it tolerates.'),
    'topologySpreadConstraints': o.many(o.anything()),
    'utilityVolumes': o.many(o.anything()),
}, required=('domain',), struct=True)
# An enumeration there is a pointer to a string of which any value decodes;
# the admission says which are good.
for _field in ('evictionStrategy', 'startStrategy'):
    del VMI_SPEC['properties'][_field]['enum']

VM_SPEC = o.record('What the machine shall be.', {
    'runStrategy': o.Node(type='string', description=(
        'When the machine shall run: Always, RerunOnFailure, Manual, Once '
        'or Halted.')),
    'running': o.boolean('Deprecated, runStrategy is its successor: run '
                         'always, or not.'),
    'template': o.record('The instance that is made when it runs.', {
        'metadata': METADATA,
        'spec': VMI_SPEC}),
    'dataVolumeTemplates': o.many(
        volumes.DATA_VOLUME_TEMPLATE, 'DataVolumes that are made with it.'),
    'instancetype': o.anything('An instance type to take sizes from.'),
    'preference': o.anything('A preference to take devices from.'),
    'updateVolumesStrategy': o.Node(
        type='string', description='Replacement or Migration.'),
}, required=('template',), struct=True)


def _whole(description, spec, status):
    return o.record(description, {
        'apiVersion': {'type': 'string', 'description': 'kubevirt.io/v1'},
        'kind': {'type': 'string'},
        'metadata': {'type': 'object'},
        'spec': spec, 'status': status}, required=('spec',))


def _condition():
    stamp = o.Node(type='string', format='date-time', nullable=True)
    return o.record('A fact about the object.', {
        'type': o.text(), 'status': o.text('True, False or Unknown.'),
        'reason': o.text('One word.'), 'message': o.text('A sentence.'),
        'lastProbeTime': stamp, 'lastTransitionTime': stamp,
    }, required=('type', 'status'))


def _status(description, **properties):
    node = o.anything(description)
    node['properties'] = {
        'conditions': o.many(_condition(), 'Facts about it.'), **properties}
    node['nullable'] = True
    return node


VM = _whole(
    'A VirtualMachine: the template of an instance and the wish that it '
    'runs or not.', VM_SPEC,
    _status('What became of it.',
            created=o.flag('An instance exists.'),
            ready=o.flag('The instance is ready.'),
            printableStatus=o.text('The state in one word, for people.'),
            runStrategy=o.text('The strategy that was last acted upon.'),
            stateChangeRequests=o.many(o.record('A start or a stop.', {
                'action': o.text('Start or Stop.'),
                'data': o.labels(),
                'uid': o.text('The instance to stop.'),
            }, required=('action',)), 'What is still to be done.')))

VMI = _whole(
    'A VirtualMachineInstance: a machine that runs, or is about to.',
    VMI_SPEC,
    _status('What became of it.',
            phase=o.text('Pending, Scheduling, Scheduled, Running, '
                         'Succeeded or Failed.'),
            nodeName=o.text('Where it runs.'),
            interfaces=o.many(o.anything(), 'Its cards as they are.'),
            volumeStatus=o.many(o.anything(), 'Its volumes as they are.')))

KUBEVIRT = _whole(
    'The installation of KubeVirt in the cluster.',
    o.record('How KubeVirt shall be.', {
        'configuration': o.record('How it shall work.', {
            'developerConfiguration': o.record('Feature gates and such.', {
                'featureGates': o.strings('Features that are on.'),
                'disabledFeatureGates': o.strings(
                    'Features that are off though they are beta.'),
            }, **{'x-kubernetes-preserve-unknown-fields': True}),
        }, struct=True, **{'x-kubernetes-preserve-unknown-fields': True}),
    }, struct=True, **{'x-kubernetes-preserve-unknown-fields': True}),
    _status('How KubeVirt is.',
            phase=o.text('Deployed when it works.'),
            observedKubeVirtVersion=o.text('Its version.'),
            operatorVersion=o.text('The version of its operator.')))
