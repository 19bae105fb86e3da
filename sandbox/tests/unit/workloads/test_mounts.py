# SPDX-License-Identifier: Apache-2.0
import os
import pathlib

import fixtures
from oslotest import base

from kubevirt_sandbox.workloads import fields
from kubevirt_sandbox.workloads import mounts
from tests.unit.workloads import test_environment


class WriteTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'v'

    def write(self, **files):
        return mounts.write(self.folder, {
            name.replace('_', '/'): (text.encode(), 0o640)
            for name, text in files.items()})

    def test_files_are_symlinks_through_data_link(self):
        self.assertTrue(self.write(a='1', d_b='2'))
        self.assertEqual('..data/a', os.readlink(self.folder / 'a'))
        self.assertEqual('2', (self.folder / 'd/b').read_text())
        self.assertEqual(
            0o640, (self.folder / 'a').stat().st_mode & 0o777)

    def test_unchanged_files_are_not_written(self):
        self.write(a='1')
        was = os.readlink(self.folder / '..data')
        self.assertFalse(self.write(a='1'))
        self.assertEqual(was, os.readlink(self.folder / '..data'))

    def test_update_replaces_link_and_removes_old_files(self):
        self.write(a='1', b='1')
        was = os.readlink(self.folder / '..data')
        with open(self.folder / 'a') as opened:
            self.assertTrue(self.write(a='2', c='3'))
            self.assertEqual('1', opened.read())
        self.assertNotEqual(was, os.readlink(self.folder / '..data'))
        self.assertEqual('2', (self.folder / 'a').read_text())
        now = os.readlink(self.folder / '..data')
        self.assertEqual({'..data', now, 'a', 'c'},
                         set(os.listdir(self.folder)))


class VolumesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def make(self, *volumes, **objects):
        return mounts.Volumes(
            self.folder, {'volumes': volumes}, test_environment.make(
                test_environment.Store(**objects)), lambda source: 'token')

    def test_projected_volume(self):
        self.make({'name': 'v', 'projected': {'sources': [
            {'serviceAccountToken': {'path': 'token'}},
            {'configMap': {'name': 'ca', 'items': [
                {'key': 'ca.crt', 'path': 'x/ca.crt'}]}},
            {'downwardAPI': {'items': [{
                'path': 'ns', 'fieldRef': {
                    'fieldPath': 'metadata.namespace'}}]}}]}},
            configmap_ca={'data': {'ca.crt': 'CA', 'more': '-'}}).write()
        self.assertEqual({'..data', 'token', 'x', 'ns'}, {
            n for n in os.listdir(self.folder / 'v')
            if n == '..data' or not n.startswith('..')})
        self.assertEqual('CA', (self.folder / 'v/x/ca.crt').read_text())
        self.assertEqual('n', (self.folder / 'v/ns').read_text())

    def test_missing_secret(self):
        self.assertRaises(fields.Missing, self.make(
            {'name': 'v', 'secret': {'secretName': 's'}}).write)
        self.make({'name': 'v', 'secret': {
            'secretName': 's', 'optional': True}}).write()

    def test_rejects_paths_outside_of_volume(self):
        for path in ('../x', '/x', 'a/../../x', '..data'):
            volumes = self.make({'name': 'v', 'secret': {
                'secretName': 's', 'items': [{'key': 'k', 'path': path}]}},
                secret_s={'data': {'k': 'dw=='}})
            self.assertRaises(fields.Missing, volumes.write)

    def test_empty_dir_is_world_writable(self):
        self.make({'name': 'v', 'emptyDir': {'medium': 'Memory'}}).write()
        self.assertEqual(0o40777, (self.folder / 'v').stat().st_mode)

    def test_rejects_unknown_volume_types(self):
        self.assertRaises(mounts.Unknown, self.make(
            {'name': 'v', 'hostPath': {'path': '/'}}).write)
