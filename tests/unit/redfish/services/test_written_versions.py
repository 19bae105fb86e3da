# SPDX-License-Identifier: Apache-2.0

import os
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.redfish.services import written_versions


class WrittenVersionsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.one = written_versions.WrittenVersions(self.folder)
        self.two = written_versions.WrittenVersions(self.folder)

    def test_other_worker_reads_recorded_version(self):
        self.assertEqual(0, self.two.latest('a'))
        self.one.record('a', '12')
        self.assertEqual(12, self.two.latest('a'))
        self.assertEqual(0, self.two.latest('b'))

    def test_latest_is_highest_version(self):
        self.one.record('a', '12')
        self.two.record('a', '11')
        self.assertEqual(12, self.one.latest('a'))
        self.two.record('a', '13')
        self.assertEqual(13, self.one.latest('a'))

    def test_records_expire(self):
        self.one.record('a', '12')
        with mock.patch.object(written_versions.time, 'monotonic',
                               return_value=written_versions.time.monotonic()
                               + written_versions.VALID_SECONDS):
            self.assertEqual(0, self.two.latest('a'))

    def test_ignores_versions_that_are_no_numbers(self):
        for version in None, '', 'abc', '-1', str(1 << 64):
            self.one.record('a', version)
            self.assertEqual(0, self.two.latest('a'))

    def test_other_process_reads_recorded_version(self):
        if not (pid := os.fork()):
            self.one.record('a', '7')
            os._exit(0)
        os.waitpid(pid, 0)
        self.assertEqual(7, self.two.latest('a'))

    def test_survives_corrupted_file(self):
        with open(os.path.join(self.folder, 'writes'), 'r+b') as stream:
            stream.write(
                os.urandom(
                    written_versions._RECORD.size *
                    written_versions._RECORDS))
        self.two.latest('a')
        self.one.record('a', '5')
