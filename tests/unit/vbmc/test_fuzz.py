# SPDX-License-Identifier: Apache-2.0
"""A short run of `fuzz`: every command, with random data."""

import os
import unittest
from unittest import mock

from tests.unit.vbmc import fuzz
from vbmc_kubevirt.ipmi import server


class FuzzTest(unittest.IsolatedAsyncioTestCase):

    async def asyncSetUp(self):
        self.seed = int.from_bytes(os.urandom(4), 'big')
        self.fuzzer = fuzz.Fuzzer(self.seed)

    async def asyncTearDown(self):
        self.fuzzer.stop()

    async def test_random_requests_of_an_administrator(self):
        fuzzer, seed = self.fuzzer, self.seed
        with mock.patch.object(server.LOG, 'exception') as exception:
            # Before a request can disable SOL.
            fuzzer.send_sol(b'\1\0\0\0' + bytes(1000))
            await fuzzer.send(1500)
        self.assertEqual([], exception.call_args_list[:1])
        self.assertEqual([], fuzzer.unspecified, seed)
        # Requests have reached handlers, and were not only refused.
        self.assertLessEqual({0x00, 0x80, 0xC1, 0xC7, 0xCC, 0xD4},
                             fuzzer.codes)
        self.assertGreater(fuzzer.v15_answers, 100)
        # Packets with more characters than allowed are cut.
        self.assertEqual(251, fuzzer.console.largest, seed)
        self.assertTrue(await fuzzer.unaffected(), seed)
