# SPDX-License-Identifier: Apache-2.0
"""The definition and the policies, compared with this checkout's manifests."""

import copy
import pathlib
import sysconfig
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator.diagnose import installation
from sushy_kubevirt.operator.diagnose import kinds
from sushy_kubevirt.operator.diagnose import manifests
from tests.unit.operator.diagnose import fakes

ESTABLISHED = {'conditions': [{'type': 'Established', 'status': 'True'}]}


class DefinitionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client()
        [wanted] = manifests.read(manifests.DEFINITION)
        self.body = {**copy.deepcopy(wanted), 'status': ESTABLISHED}

    def check(self):
        return list(installation.definition(fakes.reading(
            self.client.put(kinds.DEFINITION, self.body))))

    def spec(self):
        return self.body['spec']['versions'][0]['schema']['openAPIV3Schema'][
            'properties']['spec']['properties']

    def test_missing_and_not_established(self):
        found = list(installation.definition(fakes.reading(self.client)))
        self.assertEqual([('problem', 'DefinitionMissing')],
                         fakes.brief(found))
        self.body['status'] = {}
        self.assertEqual([('problem', 'DefinitionNotEstablished')],
                         fakes.brief(self.check()))

    def test_that_of_this_version(self):
        self.assertEqual([('ok', 'DefinitionInstalled')],
                         fakes.brief(self.check()))

    def test_older_one(self):
        del self.spec()['service']['properties']['nodePorts']
        del self.spec()['virtualMedia']
        [found] = self.check()
        self.assertEqual([('problem', 'DefinitionOutdated')],
                         fakes.brief([found]))
        # The outermost fields alone.
        self.assertIn('lacks spec.service.nodePorts, spec.virtualMedia.',
                      found.message)

    def test_another_version_of_the_resource(self):
        self.body['spec']['versions'][0]['name'] = 'v1alpha1'
        [found] = self.check()
        self.assertEqual([('problem', 'DefinitionOutdated')],
                         fakes.brief([found]))

    def test_newer_one(self):
        self.spec()['future'] = {'type': 'string'}
        [found] = self.check()
        self.assertEqual([('warning', 'DefinitionNewer')],
                         fakes.brief([found]))
        self.assertIn('spec.future', found.message)

    def test_user_who_may_not_read_definitions(self):
        self.client.denied.add(kinds.DEFINITION)
        found = installation.definition(fakes.reading(self.client))
        self.assertEqual([('ok', 'DefinitionInstalled')],
                         fakes.brief([next(found)]))
        self.assertRaises(errors.AccessDenied, next, found)


class PoliciesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client()
        self.objects = copy.deepcopy(manifests.read(manifests.ADMISSION))
        for one in self.objects:
            # As the API server completes them.
            if one['kind'] == kinds.POLICY.kind:
                one['spec']['matchConstraints'].update(
                    matchPolicy='Equivalent', namespaceSelector={},
                    objectSelector={})

    def check(self):
        for resource in kinds.POLICY, kinds.POLICY_BINDING:
            self.client.put(resource, *manifests.of_kind(
                self.objects, resource.kind))
        return list(installation.policies(fakes.reading(self.client)))

    def test_those_of_this_version(self):
        self.assertEqual([('ok', 'PoliciesInstalled')],
                         fakes.brief(self.check()))

    def test_missing_policy_and_binding(self):
        self.objects = [one for one in self.objects if (
            one['kind'], one['metadata']['name']) not in (
                (kinds.POLICY.kind, 'virtbmc-events'),
                (kinds.POLICY_BINDING.kind, 'virtbmc-secrets'))]
        [found] = self.check()
        self.assertEqual([('problem', 'PolicyMissing')],
                         fakes.brief([found]))
        self.assertIn('Not installed: virtbmc-events, the binding of '
                      'virtbmc-secrets.', found.message)
        self.assertIn('kubectl apply -k', found.remedy)

    def test_policy_that_does_not_deny(self):
        for one in manifests.of_kind(self.objects, kinds.POLICY_BINDING.kind):
            one['spec']['validationActions'] = ['Warn']
        self.assertEqual([('problem', 'PolicyDiffers')],
                         fakes.brief(self.check()))

    def test_policy_with_fewer_validations(self):
        policy = manifests.of_kind(self.objects, kinds.POLICY.kind)[1]
        policy['spec']['validations'].pop()
        [found] = self.check()
        self.assertIn(f"Not as in this version: {policy['metadata']['name']}.",
                      found.message)


class ManifestsTestCase(base.BaseTestCase):

    def test_first_folder_that_has_it(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'a').write_text('---\n---\nkind: X\n')
        self.useFixture(fixtures.MockPatchObject(
            manifests, 'FOLDERS', (folder / 'none', folder)))
        self.assertEqual([{'kind': 'X'}], manifests.read('a'))
        e = self.assertRaises(manifests.Missing, manifests.read, 'b')
        self.assertIn(str(folder), str(e))

    def test_places(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        module = 'sushy_kubevirt/operator/diagnose/manifests.py'
        user = folder / 'lib/site-packages'
        for name, value in (('getuserbase', folder),
                            ('getusersitepackages', user)):
            self.useFixture(fixtures.MonkeyPatch(
                f'site.{name}', lambda value=value: str(value)))

        def places(packages):
            with mock.patch.object(
                    manifests, '__file__', str(packages / module)):
                return manifests.places()
        # By pip install --user.
        self.assertEqual(folder / 'etc/sushy-kubevirt/kubernetes',
                         places(user)[0])
        self.assertEqual(
            (pathlib.Path(sysconfig.get_path('data'))
             / 'etc/sushy-kubevirt/kubernetes', folder / 'etc/kubernetes'),
            places(folder))

    def test_remedies_name_the_folder(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBERNETES_SERVICE_HOST'))
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (folder / 'crd').mkdir()
        (folder / manifests.DEFINITION).touch()
        with mock.patch.object(
                manifests, 'FOLDERS', (folder / 'none', folder)):
            self.assertEqual(str(folder / 'crd'), manifests.where('crd'))
        self.assertIn(f'kubectl apply -k {manifests.where()}, or',
                      installation.remedy())
        self.assertTrue(pathlib.Path(manifests.where('crd')).is_absolute())
        # kubectl does not see the files of a pod.
        self.useFixture(fixtures.EnvironmentVariable(
            'KUBERNETES_SERVICE_HOST', '10.0.0.1'))
        self.assertIn('apply -k etc/kubernetes (in a clone of this version; '
                      'etc/sushy-kubevirt/kubernetes where its package is '
                      'installed), or', installation.remedy())
