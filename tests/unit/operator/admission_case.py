# SPDX-License-Identifier: Apache-2.0
"""Evaluates the admission policies for BMC accounts."""

import pathlib

from oslotest import base
import yaml

from kubevirt_sandbox.testing import admission
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.operator import rbac
from tests.unit.operator import bodies

PATH = (pathlib.Path(__file__).parents[3]
        / 'etc/kubernetes/base/admission.yaml')

SLOT = media_annotation.slots('vm', model.CD.id)[0]

BMC_USER = 'system:serviceaccount:lab:' + rbac.account(bodies.bmc())[
    'metadata']['name']

HTTP = {'url': 'https://a.test/a.iso'}
STORAGE = {'resources': {'requests': {'storage': '1Gi'}}}
OWN = 'sushy-kubevirt.openstack.org/'
FOREIGN = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'name': 'a', 'uid': 'b'}

VM_OWNER = {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'name': 'vm', 'uid': 'b'}

DISK = {'name': 'root', 'persistentVolumeClaim': {'claimName': 'root'}}
LONG = 'v' * 60


def spec(**fields):
    """Return the spec of a VM whose template has these fields."""
    return {'spec': {'template': {'spec': {'domain': {}, **fields}}}}


def devices(**fields):
    return spec(domain={'devices': fields})


def metadata(**fields):
    return {'metadata': {'name': 'vm', **fields}, **spec()}


def template(**fields):
    return {'spec': {'template': {'metadata': fields, **spec()['spec'][
        'template']}}}


def pod_network(binding=None, networks=({'name': 'default', 'pod': {}},),
                autoattach=None, **fields):
    """Return a VM with an interface in the pod network.

    :param binding: that of the annotation; None without
    :param autoattach: ``autoattachPodInterface``; None without
    :param fields: of the interface
    """
    notes = {} if binding is None else {'annotations': {
        'sushy-kubevirt.openstack.org/pod-interface': binding}}
    more = {} if autoattach is None else {
        'autoattachPodInterface': autoattach}
    return {'metadata': {'name': 'vm', **notes}, **spec(
        domain={'devices': {'interfaces': [{'name': 'default', **fields}],
                            **more}}, networks=list(networks))}


SIDECAR = 'hooks.kubevirt.io/hookSidecars'
HARVESTER = 'harvesterhci.io/'


class AdmissionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        documents = list(yaml.safe_load_all(PATH.read_text()))
        self.policies = {one['metadata']['name']: one['spec']
                         for one in documents
                         if one['kind'] == 'ValidatingAdmissionPolicy'}
        self.bound = {
            one['spec']['policyName']: one['spec']['validationActions']
            for one in documents
            if one['kind'] == 'ValidatingAdmissionPolicyBinding'}

    def denials(self, policy, obj, old=None, **inputs):
        inputs['request'] = {'userInfo': {'username': BMC_USER},
                             **inputs.get('request', {})}
        return [message for message, _ in admission.failed_validations(
            {**self.policies[policy], 'matchConditions': []},
            {'object': obj, 'oldObject': old, **inputs})]

    def assert_denied(self, expected, found):
        if expected is None:
            self.assertEqual([], found)
        else:
            self.assertEqual(1, len(found))
            self.assertIn(expected, found[0])

    def assert_each(self, policy, denial, rows, **request):
        """Check which objects a policy denies.

        :param denial: part of it
        :param rows: (object, that before or None, whether it is admitted)
        :param request: of the admission review
        """
        for obj, old, allowed in rows:
            with self.subTest(obj=obj, old=old):
                self.assert_denied(
                    None if allowed else denial,
                    self.denials(policy, obj, old, request=request))
