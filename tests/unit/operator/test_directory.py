# SPDX-License-Identifier: Apache-2.0
"""What is known of VMs and Secrets, in whatever order it is told."""

import asyncio

from oslotest import base

from sushy_kubevirt.operator import directory
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies
from tests.unit.operator import cluster

AT = spec.Reference('lab', 'key')


class SecretsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.there = cluster.Cluster()
        self.asked = []
        self.there.faults.append(
            lambda *what: self.asked.append(what))
        self.secrets = directory.Secrets(self.there)

    def given(self):
        return self.there.add({'kind': 'Secret', 'type': 'Opaque',
                               **bodies.secret()})

    def get(self):
        return asyncio.run(self.secrets.get(AT))

    def test_read_when_it_has_moved(self):
        self.assertIsNone(self.get())
        one = self.given()
        self.assertTrue(self.secrets.put(one))
        self.assertEqual(self.get(), self.get())
        self.assertEqual(1, len(self.asked))
        two = self.given()
        self.assertTrue(self.secrets.put(two))
        # That is older, or known.
        self.assertFalse(self.secrets.put(one))
        self.assertFalse(self.secrets.put(two))
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        self.assertEqual(2, len(self.asked))

    def test_one_that_was_made_anew_is_not_gone(self):
        one, two = self.given(), self.given()
        self.secrets.take(two)
        self.assertFalse(self.secrets.gone(one))
        self.assertIsNotNone(self.get())
        self.assertTrue(self.secrets.gone(two))
        self.assertIsNone(self.get())
        self.assertEqual([], self.asked)

    def test_what_one_bmc_has_read_is_news_to_another(self):
        one, two = self.given(), self.given()
        self.secrets.put(one)
        # It is read before the watch tells.
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        # An answer that was late, and the end of one before.
        self.secrets.take(one)
        self.assertFalse(self.secrets.gone(one))
        self.assertTrue(self.secrets.put(two))
        self.assertEqual(two['metadata']['uid'],
                         self.get().obj['metadata']['uid'])
        self.assertEqual(1, len(self.asked))

    def test_an_answer_that_comes_after_its_end(self):
        one = self.given()
        self.secrets.put(one)
        gone = self.given()
        self.assertTrue(self.secrets.gone(gone))
        # The caller has it all the same.
        self.assertIsNotNone(self.secrets.take(one))
        self.assertIsNone(self.get())
        self.assertEqual(({}, []), (self.secrets._seen,
                                    self.secrets.names()))
        # One that is made anew is there.
        self.assertTrue(self.secrets.put(self.given()))
        self.assertIsNotNone(self.get())

    def test_one_that_is_not_there_when_it_is_read(self):
        self.secrets.put(self.given())
        self.there.remove('Secret', 'lab', 'key')
        self.assertIsNone(self.get())
        self.assertEqual({}, self.secrets._seen)
