# SPDX-License-Identifier: Apache-2.0
"""Renewal and lifetime of mounted tokens."""

import asyncio
import unittest
from unittest import mock

from kubevirt_sandbox.workloads import mountedtokens


class TokensTestCase(unittest.IsolatedAsyncioTestCase):

    def setUp(self):
        self.now = 1000
        self.requests = []

    def issue(self, audiences, seconds):
        self.requests.append((audiences, seconds))
        return f'token {len(self.requests)}'

    def get(self, tokens, **source):
        with mock.patch.object(asyncio.get_running_loop(), 'time',
                               lambda: self.now):
            return tokens.get(source)

    async def test_default_token_is_renewed_and_valid_for_a_year(self):
        tokens = mountedtokens.Tokens(self.issue)
        self.assertIsNone(tokens.due())
        self.assertEqual('token 1', self.get(tokens, expirationSeconds=3607))
        self.assertEqual([((), 365 * 24 * 3600)], self.requests)
        self.assertAlmostEqual(1000 + 3607 * 0.8, tokens.due())
        self.now = tokens.due() - 1
        self.assertEqual('token 1', self.get(tokens, expirationSeconds=3607))
        self.now += 1
        self.assertEqual('token 2', self.get(tokens, expirationSeconds=3607))

    async def test_other_tokens_expire_as_requested(self):
        tokens = mountedtokens.Tokens(self.issue)
        self.get(tokens, expirationSeconds=600, audience='a')
        self.get(tokens, expirationSeconds=10 ** 6)
        self.assertEqual([(('a',), 600), ((), 10 ** 6)], self.requests)
        self.assertAlmostEqual(1000 + 480, tokens.due())
        self.now = 1000 + 24 * 3600 * 0.8
        self.assertEqual('token 3', self.get(tokens,
                                             expirationSeconds=10 ** 6))

    async def test_option_overrides_requested_lifetime(self):
        tokens = mountedtokens.Tokens(self.issue, 10)
        self.get(tokens, expirationSeconds=3607)
        self.assertEqual([((), 10)], self.requests)
        self.assertAlmostEqual(1008, tokens.due())
