# SPDX-License-Identifier: Apache-2.0
"""Policies for VMs that other webhooks complete."""

import copy

from kubevirt_sandbox.testing import admission
from tests.unit.operator import admission_case

devices = admission_case.devices
metadata = admission_case.metadata
pod_network = admission_case.pod_network
HARVESTER = admission_case.HARVESTER

# Interfaces (VM before, VM after) that a BMC must not add or remove: not the
# one that KubeVirt would add, or the owner's.
FOREIGN_INTERFACES = (
    (metadata(), pod_network('bridge', masquerade={})),
    (metadata(), pod_network('bridge', bridge={}, model='e1000')),
    (metadata(), pod_network('bridge', bridge={}, networks=[
        {'name': 'default', 'multus': {'networkName': 'a'}}])),
    (metadata(), pod_network('bridge', bridge={}, networks=[
        {'name': 'default', 'pod': {'vmNetworkCIDR': 'a'}}])),
    (metadata(), pod_network('sriov', sriov={})),
    (metadata(), pod_network(bridge={})),
    ({'metadata': {'name': 'vm'},
      **devices(autoattachPodInterface=False)},
     pod_network('bridge', bridge={}, autoattach=False)),
    (pod_network(masquerade={}), metadata()),
    (pod_network('bridge', masquerade={}), metadata()),
    (pod_network('bridge', bridge={}, ports=[]), metadata()),
    (pod_network(bridge={}), pod_network('bridge', bridge={})),
    (metadata(), metadata(annotations={
        'sushy-kubevirt.openstack.org/pod-interface': 'bridge'})),
    (pod_network('masquerade', bridge={}),
     pod_network('bridge', bridge={})),
)


def of_harvester(domain=None, **fields):
    """Return a VM that Harvester knows, stopped.

    :param domain: dict, of its template
    :param fields: other fields of the template's spec
    """
    return {
        'metadata': {'name': 'vm', 'labels': {
            'harvesterhci.io/creator': 'harvester'}},
        'spec': {'runStrategy': 'Halted', 'template': {'spec': {
            'domain': domain or {}, **fields}}}}


# VMs that an older Harvester stored
HARVESTERS = (
    of_harvester(),
    of_harvester({'cpu': {'cores': 2}}),
    of_harvester({'cpu': {'cores': 2, 'sockets': 0, 'threads': 1,
                          'model': 'host-passthrough'}}),
    of_harvester(affinity={'podAffinity': {}},
                 terminationGracePeriodSeconds=5),
    of_harvester({'devices': {'interfaces': [
        {'name': 'default', 'masquerade': {}}, {'name': 'b', 'bridge': {}}]}}),
    {**of_harvester(), 'metadata': {'name': 'vm', 'annotations': {
        HARVESTER + 'mac-address': '{}'}}},
)

# (VM that Harvester knows, what else than completing it is denied)
BEYOND_HARVESTER = (
    (of_harvester(), of_harvester({'cpu': {'cores': 2}})),
    (of_harvester(), of_harvester({'cpu': {'cores': 1, 'model': 'a'}})),
    (of_harvester({'cpu': {'cores': 2}}), of_harvester({'cpu': {
        'cores': 1, 'sockets': 1, 'threads': 1}})),
    (of_harvester({'cpu': {'cores': 2}}), of_harvester({'cpu': {
        'sockets': 1, 'threads': 1}})),
    (of_harvester(), of_harvester(affinity={'nodeAffinity': {}})),
    (of_harvester(affinity={'a': {}}), of_harvester(affinity={})),
    (of_harvester(terminationGracePeriodSeconds=5),
     of_harvester(terminationGracePeriodSeconds=0)),
    (of_harvester(), of_harvester(hostname='a')),
    *((of_harvester({'devices': {'interfaces': [{'name': 'a', **old}]}}),
       of_harvester({'devices': {'interfaces': [{'name': 'a', **new}]}}))
      for old, new in (
          # One of a manufacturer.
          ({}, {'macAddress': '00:1b:21:00:00:01'}),
          ({}, {'macAddress': '02:00:00:00:00:01', 'model': 'e1000'}),
          ({'macAddress': '02:00:00:00:00:01'},
           {'macAddress': '02:00:00:00:00:02'}))),
)


class CompletedMachinesTestCase(admission_case.AdmissionTestCase):

    def machine_denials(self, old, new):
        return self.denials('virtbmc-virtualmachines', new, old,
                            request={'namespace': 'lab'})

    def test_machines_that_harvester_completes(self):
        for old in HARVESTERS:
            with self.subTest(old=old):
                new = copy.deepcopy(old)
                new['spec']['runStrategy'] = 'Always'
                admission.complete_by_harvester(new, old)
                self.assertNotEqual(old['spec']['template'],
                                    new['spec']['template'])
                self.assertEqual([], self.machine_denials(old, new))
                # On another cluster, or if the BMC's own annotation says so.
                for one in (old, new):
                    one['metadata'] = {'name': 'vm', 'annotations': {
                        HARVESTER + 'vmRunStrategy': 'Always'}}
                self.assertTrue(self.machine_denials(old, new))

    def test_machines_of_harvester_are_only_completed(self):
        for old, new in BEYOND_HARVESTER:
            with self.subTest(old=old, new=new):
                self.assertEqual(1, len(self.machine_denials(old, new)))

    def test_foreign_interfaces(self):
        for old, new in FOREIGN_INTERFACES:
            with self.subTest(old=old, new=new):
                self.assertTrue(self.denials(
                    'virtbmc-virtualmachines', new, old,
                    request={'namespace': 'lab'}))
