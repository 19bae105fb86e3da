# SPDX-License-Identifier: Apache-2.0
"""Storage classes of virtual media."""

from oslotest import base

from sushy_kubevirt.operator.diagnose import kinds
from sushy_kubevirt.operator.diagnose import storage
from sushy_kubevirt.operator import spec
from tests.unit.operator.diagnose import fakes

DEFAULT = 'storageclass.kubernetes.io/is-default-class'
VIRT = 'storageclass.kubevirt.io/is-default-virt-class'


def storage_class(name, *annotations, provisioner='csi.test',
                  created='2026-01-01T00:00:00Z'):
    return fakes.named(name, provisioner=provisioner, metadata={
        'creationTimestamp': created,
        'annotations': dict.fromkeys(annotations, 'true')})


def profile(name, *modes):
    return fakes.named(name, status={'claimPropertySets': [
        {'accessModes': list(modes)}] if modes else []})


class StorageTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.client = fakes.Client()

    def default(self):
        return list(storage.default_class(fakes.reading(self.client)))

    def test_no_default_class(self):
        for expected in ('nor any other', '(but fast, slow)'):
            [found] = self.default()
            self.assertEqual([('warning', 'NoDefaultStorageClass')],
                             fakes.brief([found]))
            self.assertIn(expected, found.message)
            self.assertIn(DEFAULT, found.remedy)
            self.client.put(kinds.STORAGE_CLASS, storage_class('slow'),
                            storage_class('fast'))

    def test_default_class_is_that_of_cdi(self):
        self.client.put(
            kinds.STORAGE_CLASS, storage_class('old', DEFAULT),
            storage_class('new', DEFAULT, created='2026-02-01T00:00:00Z'))
        self.assertIn('Default storage class new ', self.default()[0].message)
        self.client.put(kinds.STORAGE_CLASS, storage_class('virt', VIRT))
        self.assertIn('Default storage class virt ',
                      self.default()[0].message)

    def test_access_modes(self):
        self.client.put(kinds.STORAGE_CLASS, storage_class('nfs', DEFAULT))
        for modes, expected in (
                ((), ('ok', 'StorageClassFound')),
                (('ReadWriteMany', 'ReadWriteOnce'),
                 ('ok', 'StorageClassFound')),
                (('ReadWriteMany',), ('warning', 'AccessModeNotOffered'))):
            self.client.put(kinds.STORAGE_PROFILE, profile('nfs', *modes))
            self.assertEqual([expected], fakes.brief(self.default()))
        # The profiles are CDI's.
        self.client.groups = ('kubevirt.io',)
        self.assertEqual([], self.default())

    def test_class_without_provisioner(self):
        self.client.put(kinds.STORAGE_CLASS, storage_class(
            'local', DEFAULT, provisioner='kubernetes.io/no-provisioner'))
        self.assertIn(('warning', 'NoProvisioner'),
                      fakes.brief(self.default()))

    def test_class_that_a_bmc_names(self):
        def named(**media):
            return fakes.brief(storage.of_bmc(
                fakes.reading(self.client), spec.Media(**media)))
        fast = {'storage_class': 'fast'}
        self.assertEqual([('problem', 'StorageClassMissing')], named(**fast))
        self.client.put(kinds.STORAGE_CLASS, storage_class('fast'))
        found = [('ok', 'StorageClassFound')]
        self.assertEqual(found, named(**fast))
        self.assertEqual([], named())

        # Of the default class, if there is one.
        self.assertEqual([], named(access_mode='ReadWriteMany'))
        self.client.put(kinds.STORAGE_CLASS, storage_class('std', DEFAULT))
        self.client.put(kinds.STORAGE_PROFILE, profile('std', 'ReadWriteMany'))
        self.assertEqual(found, named(access_mode='ReadWriteMany'))
        self.assertEqual(found, named(access_mode='auto'))
        self.assertEqual([('warning', 'AccessModeUnknown')],
                         named(access_mode='auto', **fast))
