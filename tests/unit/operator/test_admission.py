# SPDX-License-Identifier: Apache-2.0
"""The policies for the accounts of BMCs, evaluated."""

import pathlib
import types

import cel
from oslotest import base
import yaml

from sushy_kubevirt.kubevirt.media import datavolumes
from sushy_kubevirt.kubevirt.media import model
from sushy_kubevirt.kubevirt.media import record
from sushy_kubevirt.kubevirt import options
from sushy_kubevirt.operator import rights
from tests.unit.operator import bodies

PATH = (pathlib.Path(__file__).parents[3]
        / 'etc/kubernetes/base/admission.yaml')

SLOT = record.slots('vm', model.CD.id)[0]
BMC = 'system:serviceaccount:lab:' + rights.account(bodies.bmc())[
    'metadata']['name']

HTTP = {'url': 'https://a.test/a.iso'}

# Source of a DataVolume, what is said of it
SOURCES = (
    ({'http': HTTP}, None),
    ({'upload': {}}, None),
    ({'http': {**HTTP, 'secretRef': SLOT}}, None),
    ({'http': {**HTTP, 'secretRef': SLOT + '-1a2b'}}, None),
    ({'http': {**HTTP, 'secretRef': 'admins-token'}}, 'own Secret only'),
    ({'http': {**HTTP, 'secretExtraHeaders': ['admins-token']}},
     'no Secret as a header'),
    ({'http': {**HTTP, 'certConfigMap': record.authorities(
        'vm', model.CD.id)}}, None),
    ({'http': {**HTTP, 'certConfigMap': 'settings'}}, 'own certificates'),
    ({'pvc': {'namespace': 'lab', 'name': 'other'}}, 'by upload only'),
    ({'registry': {'url': 'docker://a.test/a', 'secretRef': 'b'}},
     'by upload only'),
    (None, 'by upload only'),
)

DISK = {'name': 'root', 'persistentVolumeClaim': {'claimName': 'root'}}
MEDIUM = {'name': 'cd', 'dataVolume': {'name': SLOT}}
STOLEN = {'name': 'x', 'secret': {'secretName': 'admins-token'}}
KEYS = [{'sshPublicKey': {'source': {'secret': {'secretName': 'a'}}}}]

# Of the VM's template: what was there, what is to be, what is said of it
TEMPLATES = (
    ({}, {}, None),
    ({'volumes': [DISK]}, {'volumes': [DISK, MEDIUM]}, None),
    ({'volumes': [DISK, MEDIUM]}, {'volumes': [DISK]}, None),
    ({}, {'volumes': [MEDIUM]}, None),
    # A user's own stays.
    ({'volumes': [STOLEN]}, {'volumes': [STOLEN, MEDIUM]}, None),
    ({'volumes': [DISK]}, {'volumes': [DISK, STOLEN]}, 'adds no volumes'),
    ({}, {'volumes': [STOLEN]}, 'adds no volumes'),
    ({'volumes': [DISK]}, {'volumes': [{**DISK, 'persistentVolumeClaim': {
        'claimName': 'other'}}]}, 'adds no volumes'),
    ({'volumes': [DISK]}, {'volumes': [DISK, {
        'name': 'x', 'serviceAccount': {'serviceAccountName': 'admin'}}]},
     'adds no volumes'),
    ({}, {'accessCredentials': KEYS}, 'no credentials'),
    ({'accessCredentials': KEYS}, {'accessCredentials': KEYS}, None),
)


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

    def said(self, policy, obj, old=None):
        values = {'object': obj, 'oldObject': old}
        return [one['message'] for one in self.policies[policy][
            'validations'] if cel.evaluate(one['expression'], values)
            is not True]

    def assert_said(self, wanted, found):
        if wanted is None:
            self.assertEqual([], found)
        else:
            self.assertEqual(1, len(found))
            self.assertIn(wanted, found[0])

    def test_each_is_bound(self):
        self.assertEqual(dict.fromkeys(self.policies, ['Deny']), self.bound)

    def test_whose_writes(self):
        for user, wanted in (
                (BMC, True),
                ('system:serviceaccount:lab:default', False),
                ('jane-virtbmc', False)):
            for name, policy in self.policies.items():
                with self.subTest(user=user, policy=name):
                    self.assertEqual([wanted], [
                        cel.evaluate(one['expression'], {'request': {
                            'userInfo': {'username': user}}})
                        for one in policy['matchConditions']])

    def test_data_volumes(self):
        for source, wanted in SOURCES:
            spec = {'storage': {}}
            if source is not None:
                spec['source'] = source
            with self.subTest(source=source):
                self.assert_said(wanted, self.said('virtbmc-datavolumes', {
                    'metadata': {'name': SLOT}, 'spec': spec}))

    def test_what_the_bmc_makes_is_let_pass(self):
        machine = types.SimpleNamespace(
            namespace='lab', name='vm', uid='u', options=options.Options())
        for entry in (
                record.Entry('1', 'https://a.test', SLOT, credentials=True),
                record.Entry('1', 'https://a.test', SLOT, upload=True),
                record.Entry('1', 'https://a.test', SLOT, verify=False)):
            with self.subTest(entry=entry):
                self.assertEqual([], self.said(
                    'virtbmc-datavolumes', datavolumes.body(
                        machine, model.CD, entry, 1 << 20,
                        record.authorities('vm', model.CD.id))))

    def test_virtual_machines(self):
        for old, new, wanted in TEMPLATES:
            with self.subTest(old=old, new=new):
                self.assert_said(wanted, self.said(
                    'virtbmc-virtualmachines',
                    {'spec': {'template': {'spec': new}}},
                    {'spec': {'template': {'spec': old}}}))
