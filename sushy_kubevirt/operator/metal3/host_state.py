# SPDX-License-Identifier: Apache-2.0
"""What the status of a BMC says of its BareMetalHost."""

from __future__ import annotations

import dataclasses
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import conditions
from sushy_kubevirt.operator.metal3 import resources
from sushy_kubevirt.operator import network

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import spec

#: Annotation by which baremetal-operator leaves a host alone.
PAUSED = 'baremetalhost.metal3.io/paused'

#: Annotation by which it removes a host from Ironic, and leaves the machine as
#: it is.
DETACHED = 'baremetalhost.metal3.io/detached'

#: Annotation that ``clusterctl move`` replaces all others by, before it
#: deletes a host that it has created in another cluster (``mover.go``).
DELETE_FOR_MOVE = 'clusterctl.cluster.x-k8s.io/delete-for-move'


@dataclasses.dataclass(frozen=True)
class State:
    """
    :param condition: of type `conditions.HOST`
    :param host: ``status.bareMetalHost``; None without a host
    """

    condition: conditions.Condition
    host: objects.Json | None = None


def _state(status: bool, reason: str, message: str,
           host: objects.Json | None = None) -> State:
    return State(conditions.Condition(conditions.HOST, status, reason,
                                      message), host and summary(host))


MISSING = _state(
    False, 'BareMetalHostAPIMissing',
    f'This cluster does not serve the API of Metal3 ({resources.GROUP}). The '
    'host is created when baremetal-operator is installed; without it, run '
    'the operator without --bare-metal-hosts.')

FORBIDDEN = _state(
    False, 'BareMetalHostAPIForbidden',
    'The operator may not list BareMetalHosts. Install it with the component '
    'etc/kubernetes/components/bare-metal-hosts.')


def unlisted(error: Exception) -> State:
    """Make the state while hosts cannot be listed."""
    return _state(False, 'BareMetalHostsNotListed',
                  'BareMetalHosts cannot be listed yet; the operator tries '
                  f'again: {error}')


def summary(host: objects.Json) -> objects.Json:
    """Make ``status.bareMetalHost``."""
    status, consumer = host.get('status') or {}, (
        host.get('spec') or {}).get('consumerRef') or {}
    values = {
        'name': host['metadata']['name'], 'uid': host['metadata']['uid'],
        'state': (status.get('provisioning') or {}).get('state'),
        'consumer': '/'.join(consumer[key] for key in (
            'kind', 'namespace', 'name') if consumer.get(key)),
        'paused': is_paused(host)}
    return {key: value for key, value in values.items() if value}


def of(host: objects.Json) -> State:
    """Make the state of a host that exists."""
    status = host.get('status') or {}
    name = host['metadata']['name']
    if DELETE_FOR_MOVE in objects.annotations_of(host):
        return _state(True, 'HostMoving', f'BareMetalHost {name} is being '
                      'moved to another cluster.', host)
    if 'deletionTimestamp' in host['metadata']:
        return _state(False, 'HostDeleting',
                      f'BareMetalHost {name} is being deleted.{_pause(host)} '
                      'Another one is created then; '
                      'spec.bareMetalHost.enabled=false prevents that.', host)
    if PAUSED in objects.annotations_of(host):
        return _state(True, 'HostPaused',
                      f'BareMetalHost {name} is paused. If it is moved to '
                      'another cluster, no other is created here.', host)
    if status.get('operationalStatus') == 'error':
        return _state(False, 'HostFailed',
                      f'baremetal-operator reports of BareMetalHost {name}: '
                      f'{_error(status)} It tries again; its log and that of '
                      'Ironic say more.', host)
    stage = (status.get('provisioning') or {}).get('state')
    return _state(True, 'HostCreated', f'BareMetalHost {name} is {stage}.'
                  if stage else f'BareMetalHost {name} is created; '
                  'baremetal-operator has not looked at it yet.', host)


def unmanaged(host: objects.Json) -> State:
    """Make the state of the host of a BMC that is to have none."""
    return _state(True, 'HostNotManaged',
                  f"BareMetalHost {host['metadata']['name']} stays until it "
                  'is deleted, but is not updated: its BMC is not selected '
                  'by --bare-metal-hosts, has spec.bareMetalHost.enabled='
                  'false, or has its VM in a namespace that --namespace does '
                  'not name.', host)


def needs_mac(vm: objects.VirtualMachine) -> State:
    """Make the state without a host, as its VM has no fixed MAC address."""
    metadata = vm['metadata']
    devices = vm['spec']['template']['spec'].get('domain', {}).get(
        'devices') or {}
    remedy = 'Give the VM a network interface with a macAddress.'
    if devices.get('interfaces'):
        remedy = (
            'Stop the VM and set one: kubectl patch virtualmachine '
            f"{metadata['name']} --namespace {metadata['namespace']} "
            '--type json --patch '
            """'[{"op": "add", "path": "/spec/template/spec/domain/devices/"""
            """interfaces/0/macAddress", "value": "02:00:00:00:00:01"}]' """
            '(with an address of your own).')
    return _state(False, 'HostNeedsMAC',
                  'A BareMetalHost needs a MAC address that stays, and no '
                  f"network interface of VM {metadata['name']} has one. "
                  f'{remedy}')


def mac_in_use(bmc: spec.Bmc, mac: str, owner: objects.ObjectKey,
               host: objects.Json | None = None) -> State:
    """Make the state if another host has the MAC address.

    :param owner: that host, or the BMC that gets it
    :param host: the BMC's own host, if it exists
    """
    what = ('Ironic registers one of them only.' if host else
            'Ironic refuses a second one, so no host is created.')
    # What other namespaces have is not told.
    other = (f'BareMetalHost {owner.name}' if owner.namespace == bmc.namespace
             else 'A BareMetalHost of another namespace')
    return _state(
        False, 'HostMACInUse', f'{other} has MAC address {mac}, too. {what} '
        'Stop one of the two VMs, give its network interface another '
        'macAddress, and delete its host if there is one.', host)


def waiting_for_bmc(bmc: spec.Bmc, address: str | None, ready: bool) -> State:
    """Make the state before the BMC can be used.

    :param address: `fields.address`
    :param ready: whether the pod of the BMC is ready
    """
    if not (bmc.ipmi if bmc.host.ipmi else bmc.redfish.enabled):
        return _state(False, 'HostNeedsProtocol',
                      'The BMC does not serve the protocol of its '
                      'BareMetalHost. Enable it, or change '
                      'spec.bareMetalHost.protocol.')
    if ready and address is None and bmc.service.type != (
            network.LOAD_BALANCER):
        return _state(False, 'HostNeedsExternalAddress',
                      'With --host-external-address the BareMetalHost needs a '
                      'BMC that is reached from outside of the cluster: set '
                      'spec.service.type to LoadBalancer, or spec.route for '
                      'Redfish.')
    return _state(False, 'WaitingForBMC', 'The BareMetalHost is created when '
                  'the BMC has an address and its pod is ready: see condition '
                  'Ready.')


def without_credentials(name: str) -> State:
    """Make the state before the Secret of the BMC exists."""
    return _state(False, 'WaitingForBMC', 'The BareMetalHost is created when '
                  f'Secret {name} exists.')


def taken(resource: api_resources.AnyResource, obj: objects.Json) -> State:
    """Make the state if a foreign host, or its Secret, has the name."""
    name = obj['metadata']['name']
    return _state(False, conditions.NAME_TAKEN,
                  f'{resource.kind} {name} exists already and was not created '
                  'for this BMC. The operator does not change it: delete it, '
                  'or give the BMC another name.')


def moved(bmc: spec.Bmc) -> State:
    """Make the state after the host was moved to another cluster."""
    return _state(True, 'HostMoved',
                  'The BareMetalHost was moved to another cluster. To have '
                  'one here again: kubectl annotate virtualmachinebmc '
                  f'{bmc.name} --namespace {bmc.namespace} '
                  f'{stored_names.HOST_MOVED}-')


def address_refused(host: objects.Json, address: str, error: Exception
                    ) -> State:
    """Make the state of a host that does not get the BMC's new address.

    The webhook of baremetal-operator admits a change only while a host is
    registering or detached.
    """
    name = host['metadata']['name']
    return _state(False, 'HostAddressRefused',
                  f'BareMetalHost {name} has an old address of the BMC, and '
                  f'its change to {address} was refused: {error}. Delete the '
                  'host, which is then created with that address, or annotate '
                  f'it with {DETACHED} until its operational status is '
                  'detached.'[:1024], host)


def refused(error: Exception, body: objects.VirtualMachineBMC) -> State:
    """Make the state after the API server has refused a write.

    What is known of the host stays: that it is paused is needed later.
    """
    return dataclasses.replace(_state(
        False, conditions.REFUSED,
        'The API server refused a write for the BareMetalHost. Correct what '
        f'it names; the operator tries again: {error}'[:1024]),
        host=(body.get('status') or {}).get('bareMetalHost'))


def waiting_for_host(bmc: spec.Bmc, host: objects.Json, ready: bool) -> State:
    """Make the state of a BMC whose deletion waits for its host.

    :param ready: whether the pod of the BMC is ready
    """
    metadata, status = host['metadata'], host.get('status') or {}
    stage = (status.get('provisioning') or {}).get('state')
    why = _pause(host)
    if not ready:
        why += ' The pod of the BMC is not ready: see condition Ready.'
    if status.get('operationalStatus') == 'error':
        why += f' baremetal-operator reports: {_error(status)}'
    return _state(
        False, 'WaitingForHost',
        f"BareMetalHost {metadata['name']} is being deleted"
        f"{f' ({stage})' if stage else ''}, and needs the BMC until "
        f'then.{why} {_override(bmc)}', host)


def release_unknown(bmc: spec.Bmc, state: State) -> State:
    """Make the state of a BMC whose deletion waits until hosts are listed.

    :param state: says why they are not
    """
    return State(dataclasses.replace(state.condition, message=(
        f'{state.condition.message} Until then the BMC is not deleted, as it '
        f'may have a BareMetalHost. {_override(bmc)}')))


def _override(bmc: spec.Bmc) -> str:
    return ('To delete BMC and VM at once, with what runs on the VM: kubectl '
            f'annotate virtualmachinebmc {bmc.name} --namespace '
            f'{bmc.namespace} {stored_names.SKIP_HOST}=true')


def _pause(host: objects.Json) -> str:
    return (f' It is paused: remove its annotation {PAUSED} to go on.'
            if PAUSED in objects.annotations_of(host) else '')


def _error(status: objects.Json) -> str:
    """Write baremetal-operator's error as a sentence."""
    what = (status.get('errorMessage') or status.get('errorType') or 'error')
    return what[:700].rstrip('. ') + '.'


def is_paused(host: objects.AnyObject) -> bool:
    """Tell whether a host is paused, or being moved to another cluster."""
    return not {PAUSED, DELETE_FOR_MOVE}.isdisjoint(
        objects.annotations_of(host))


def was_paused(bmc: objects.AnyObject) -> bool:
    """Tell whether the host of a BMC is, or was, paused, or was moved.

    `HostController` records the pause before the host is gone.
    """
    status = bmc.get('status') or {}
    return bool((status.get('bareMetalHost') or {}).get('paused')) or (
        stored_names.HOST_MOVED in objects.annotations_of(bmc))


def provisioned(host: objects.AnyObject) -> str | None:
    """Find when an image was last written or booted, at the latest.

    :returns: RFC 3339 text; None for never
    """
    history = (host.get('status') or {}).get('operationHistory') or {}
    begun: str | None = (history.get('provision') or {}).get('start')
    if stored_names.HAD_HOST in objects.annotations_of(host):
        return begun or host['metadata']['creationTimestamp']
    return begun


def merged(old: objects.VirtualMachineBMCStatus, state: State | None,
           generation: int, now: str) -> objects.VirtualMachineBMCStatus:
    """Put a state into the status of a BMC.

    :param old: the present status
    :param generation: of the BMC
    :param now: RFC 3339 text
    """
    new = old.copy()
    new.pop('bareMetalHost', None)
    others = [condition for condition in old.get('conditions') or ()
              if condition['type'] != conditions.HOST]
    if state is not None:
        others = others[:-1] + conditions.merge(
            old.get('conditions'), [state.condition], generation,
            now) + others[-1:]
        if state.host:
            new['bareMetalHost'] = state.host
    if others or 'conditions' in old:
        new['conditions'] = others
    return new
