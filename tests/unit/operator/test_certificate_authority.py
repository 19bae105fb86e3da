# SPDX-License-Identifier: Apache-2.0
import asyncio
import datetime
from unittest import mock

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import certificate_authority
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from tests.unit.operator import cluster

WHERE = 'Secret', 'system', naming.AUTHORITY

OLD = pki.make('old', datetime.datetime.now(datetime.UTC)
               - datetime.timedelta(days=3000))


class CertificatesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.kube = cluster.Cluster()
        self.authority = self.process()

    def process(self):
        return certificate_authority.CertificateAuthority(self.kube, 'system')

    def found(self, which=None):
        return asyncio.run((which or self.authority).get())

    def given(self, pair, **labels):
        self.kube.add({'kind': 'Secret', 'type': 'Opaque', 'metadata': {
            'name': naming.AUTHORITY, 'namespace': 'system',
            'labels': labels}, 'data': secret_summary.data(pair)})

    def test_made_once(self):
        one = self.found()
        self.assertEqual(one, self.found())
        self.assertEqual(one, self.found(self.process()))
        self.assertEqual([('create', 'Secret', naming.AUTHORITY)],
                         self.kube.writes)
        self.assertTrue(pki.usable(one.pair))
        self.assertEqual(one.pair.certificate, one.bundle)

    def test_two_begin_at_once(self):
        other = self.process()

        async def both():
            return await asyncio.gather(self.authority.get(),
                                        other.get())
        one, two = asyncio.run(both())
        self.assertEqual(one, two)

    def test_killed_while_it_is_made(self):
        self.kube.kill_after = 0, True
        self.assertRaises(cluster.Killed, self.found)
        self.kube.kill_after = None
        self.assertEqual(self.found(self.process()), self.found(
            self.process()))

    def test_renewed(self):
        self.given(OLD, **{naming.MANAGED_BY: naming.OPERATOR})
        found = self.found()
        self.assertNotEqual(OLD.certificate, found.pair.certificate)
        # Clients may check with either.
        self.assertEqual(found.pair.certificate + OLD.certificate,
                         found.bundle)
        self.assertEqual(found, self.found(self.process()))
        # It is put back with both.
        self.kube.remove(*WHERE)
        self.authority.invalidate()
        self.assertEqual(found, self.found())

    def test_renewed_by_a_process_that_has_known_it_for_years(self):
        pair = pki.make('old')
        self.given(pair, **{naming.MANAGED_BY: naming.OPERATOR})
        self.assertEqual(pair, self.found().pair)
        with mock.patch.object(pki, '_now', lambda: (
                datetime.datetime.now(datetime.UTC)
                + pki.AUTHORITY_LIFE * 3 / 4)):
            self.assertNotEqual(pair, self.found().pair)

    def test_that_of_somebody_else_is_used_as_it_is(self):
        self.given(OLD)
        self.assertEqual(OLD, self.found().pair)
        self.assertEqual([], self.kube.writes)

    def test_one_that_cannot_be_used_is_left_alone(self):
        self.given(pki.Pair(OLD.certificate,
                            pki.make('another').key))
        self.assertRaises(errors.Rejected, self.found)
        self.assertEqual([], self.kube.writes)

    def test_changed_by_somebody(self):
        self.found()
        self.kube.remove(*WHERE)
        self.given(OLD)
        self.assertNotEqual(OLD, self.found().pair)
        self.authority.invalidate()
        self.assertEqual(OLD, self.found().pair)

    def test_changed_while_it_is_read(self):
        one, other = pki.make('one'), pki.make('other')
        self.given(one)
        get = self.kube.get

        async def changed_meanwhile(*args, **more):
            found = await get(*args, **more)
            self.kube.get = get
            self.given(other)
            # The watch is faster than the answer.
            self.authority.invalidate()
            return found
        self.kube.get = changed_meanwhile
        self.assertEqual(one, self.found().pair)
        self.assertEqual(other, self.found().pair)

    def test_one_that_could_not_be_read_is_read_again(self):
        self.given(pki.make('one'))
        self.found()
        self.authority.invalidate()
        self.kube.faults.append(lambda *_: errors.Unavailable('away'))
        self.assertRaises(errors.Unavailable, self.found)
        self.kube.faults.clear()
        other = pki.make('other')
        self.given(other)
        self.assertEqual(other, self.found().pair)
