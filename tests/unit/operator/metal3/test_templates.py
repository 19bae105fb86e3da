# SPDX-License-Identifier: Apache-2.0
import copy
import re

from oslotest import base

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator.metal3 import claims
from sushy_kubevirt.operator.metal3 import templates

CLAIM = claims.Claim('tenant', 'c', 'u1', {})

TEMPLATE = {
    'metadata': {
        'name': 'small', 'namespace': 'infra', 'uid': 't',
        'labels': {'metal3': 'true', 'app.kubernetes.io/instance': 'infra'},
        'annotations': {
            stored_names.CLAIM_TEMPLATE: 'true', 'mine': 'x',
            'argocd.argoproj.io/tracking-id': 'infra:kubevirt.io/…',
            'kubectl.kubernetes.io/last-applied-configuration': '{}'}},
    'spec': {
        'runStrategy': 'Halted',
        'dataVolumeTemplates': [
            {'metadata': {'name': 'root', 'uid': 'x'}, 'spec': {'a': 1}},
            {'metadata': {'name': 'data', 'labels': {'l': 'x'}},
             'spec': {'source': {'pvc': {'name': 'root'}}}}],
        'template': {'spec': {
            'domain': {
                'firmware': {'uuid': 'u', 'serial': 's'},
                'chassis': {'serial': 's'},
                'devices': {
                    'disks': [{'name': 'cd', 'cdrom': {}}],
                    'interfaces': [{'name': 'a', 'macAddress': 'x'},
                                   {'name': 'b'}]}},
            'volumes': [
                {'name': 'root', 'dataVolume': {'name': 'root'}},
                {'name': 'data', 'persistentVolumeClaim': {
                    'claimName': 'data'}},
                {'name': 'cd', 'persistentVolumeClaim': {
                    'claimName': 'iso'}}]}}}}


class VmTestCase(base.BaseTestCase):

    def made(self, claim=CLAIM):
        before = copy.deepcopy(TEMPLATE)
        made = templates.vm(TEMPLATE, claim)
        self.assertEqual(before, TEMPLATE)
        return made

    def test_disks(self):
        made = self.made()
        name = made['metadata']['name']
        self.assertEqual(
            [{'metadata': {'name': name + '-0'}, 'spec': {'a': 1}},
             {'metadata': {'name': name + '-1', 'labels': {'l': 'x'}},
              'spec': {'source': {'pvc': {'name': 'root'}}}}],
            made['spec']['dataVolumeTemplates'])
        self.assertEqual(
            [name + '-0', name + '-1', 'iso'],
            [templates._data_volume(one) for one in
             made['spec']['template']['spec']['volumes']])

    def test_revision_of_the_template(self):
        """KubeVirt deletes it with the template, and VMs need it to start."""
        changed = copy.deepcopy(TEMPLATE)
        changed['spec']['instancetype'] = {
            'name': 'u1.small', 'revisionName': 'small-u1.small-1'}
        made = templates.vm(changed, CLAIM)
        self.assertEqual({'name': 'u1.small'}, made['spec']['instancetype'])
        self.assertNotIn('preference', made['spec'])

    def test_identity(self):
        one, other = self.made(), self.made(
            claims.Claim('tenant', 'c', 'u2', {}))
        self.assertEqual(one, self.made())
        seen = set()
        for vm in one, other:
            inner = vm['spec']['template']['spec']['domain']
            self.assertNotIn('serial', inner['firmware'])
            self.assertNotIn('serial', inner['chassis'])
            seen |= {vm['metadata']['name'], inner['firmware']['uuid']}
            for interface in inner['devices']['interfaces']:
                self.assertRegex(interface['macAddress'],
                                 '^[0-9a-f]2(:[0-9a-f]{2}){5}$')
                seen.add(interface['macAddress'])
        self.assertEqual(8, len(seen))

    def test_metadata(self):
        made = self.made()
        self.assertEqual((('tenant', 'c'), 'u1'), templates.claim_of(made))
        self.assertFalse(templates.is_template(made))
        self.assertEqual('small', templates.template_name(made))
        self.assertEqual('x', made['metadata']['annotations']['mine'])
        # Argo CD would delete what it finds by them.
        self.assertNotIn('app.kubernetes.io/instance',
                         made['metadata']['labels'])
        self.assertEqual(3, len(made['metadata']['annotations']))
        self.assertIsNone(templates.claim_of(TEMPLATE))

    def test_names(self):
        for length in 1, 52, 53, 200:
            name = templates.name('a' * (length - 1) + 'b', 'u1')
            self.assertLessEqual(len(name), 63)
            self.assertTrue(re.fullmatch('[a-z]+-[0-9a-f]{10}', name))

    def test_bmc(self):
        vm = self.made()
        vm['metadata']['uid'] = 'v'
        made = templates.bmc(vm, {'metal3'})
        self.assertTrue(templates.is_bmc_of(vm, made))
        self.assertEqual('true', made['metadata']['labels']['metal3'])
        self.assertNotIn('service', made['spec'])
        self.assertEqual({'type': 'LoadBalancer'}, templates.bmc(
            vm, {'metal3'}, external=True)['spec']['service'])
        vm['metadata']['uid'] = 'another'
        self.assertFalse(templates.is_bmc_of(vm, made))


class CheckTestCase(base.BaseTestCase):

    def refusal(self, change):
        changed = copy.deepcopy(TEMPLATE)
        change(changed)
        return str(self.assertRaises(
            templates.Unusable, templates.check, changed))

    def test_templates(self):
        templates.check(TEMPLATE)
        self.assertIn('Halted', self.refusal(
            lambda vm: vm['spec'].update(runStrategy='Always')))
        self.assertIn('no network interface', self.refusal(
            lambda vm: vm['spec']['template']['spec']['domain'][
                'devices'].pop('interfaces')))
        self.assertIn('deleted', self.refusal(
            lambda vm: vm['metadata'].update(deletionTimestamp='x')))
        for volume in ({'persistentVolumeClaim': {'claimName': 'mine'}},
                       {'dataVolume': {'name': 'mine'}},
                       {'hostDisk': {'path': '/x'}}):
            self.assertIn('share volume more', self.refusal(
                lambda vm, one=volume: vm['spec']['template']['spec'][
                    'volumes'].append({'name': 'more', **one})))

    def test_what_the_policy_of_the_operator_refuses(self):
        # The second one has a read-only disk.
        for name in 'more', 'cd':
            self.assertIn(f'volume {name} has the token', self.refusal(
                lambda vm, name=name: vm['spec']['template']['spec'].update(
                    volumes=[{'name': name, 'serviceAccount': {
                        'serviceAccountName': 'default'}}])))
        for key in 'hookSidecars', 'onDefineDomain':
            self.assertIn('runs a sidecar', self.refusal(
                lambda vm, key=key: vm['spec']['template'].update(
                    metadata={'annotations': {
                        f'hooks.kubevirt.io/{key}': '[]'}})))
        allowed = copy.deepcopy(TEMPLATE)
        allowed['spec']['template']['metadata'] = {
            'annotations': {'kubevirt.io/x': ''}}
        templates.check(allowed)

    def test_limits(self):
        self.assertIsNone(templates.limit(TEMPLATE))
        changed = copy.deepcopy(TEMPLATE)
        changed['metadata']['annotations'][stored_names.CLAIM_LIMIT] = '3'
        self.assertEqual(3, templates.limit(changed))
        self.assertIn('no number', self.refusal(
            lambda vm: vm['metadata']['annotations'].update(
                {stored_names.CLAIM_LIMIT: 'many'})))
