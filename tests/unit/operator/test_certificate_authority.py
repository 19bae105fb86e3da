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


class CertificateAuthorityTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.kube = cluster.Cluster()
        self.authority = self.process()

    def process(self):
        return certificate_authority.CertificateAuthority(self.kube, 'system')

    def get(self, which=None):
        return asyncio.run((which or self.authority).get())

    def add_secret(self, pair, **labels):
        self.kube.add({'kind': 'Secret', 'type': 'Opaque', 'metadata': {
            'name': naming.AUTHORITY, 'namespace': 'system',
            'labels': labels}, 'data': secret_summary.data(pair)})

    def test_created_once(self):
        one = self.get()
        self.assertEqual(one, self.get())
        self.assertEqual(one, self.get(self.process()))
        self.assertEqual([('create', 'Secret', naming.AUTHORITY)],
                         self.kube.writes)
        self.assertEqual('', pki.fault(one.pair))
        self.assertEqual(one.pair.certificate, one.bundle)

    def test_concurrent_processes_agree(self):
        other = self.process()

        async def both():
            return await asyncio.gather(self.authority.get(),
                                        other.get())
        one, two = asyncio.run(both())
        self.assertEqual(one, two)

    def test_created_despite_kill_at_write(self):
        self.kube.kill_after = 0, True
        self.assertRaises(cluster.Killed, self.get)
        self.kube.kill_after = None
        self.assertEqual(self.get(self.process()), self.get(
            self.process()))

    def test_renewal_keeps_old_certificate_in_bundle(self):
        self.add_secret(OLD, **{naming.MANAGED_BY: naming.OPERATOR})
        found = self.get()
        self.assertNotEqual(OLD.certificate, found.pair.certificate)
        # Clients may verify with either certificate.
        self.assertEqual(found.pair.certificate + OLD.certificate,
                         found.bundle)
        self.assertEqual(found, self.get(self.process()))
        # After a deletion, the Secret is restored with both.
        self.kube.remove(*WHERE)
        self.authority.invalidate()
        self.assertEqual(found, self.get())

    def test_cached_authority_is_renewed(self):
        pair = pki.make('old')
        self.add_secret(pair, **{naming.MANAGED_BY: naming.OPERATOR})
        self.assertEqual(pair, self.get().pair)
        with mock.patch.object(pki, '_now', lambda: (
                datetime.datetime.now(datetime.UTC)
                + pki.AUTHORITY_LIFE * 3 / 4)):
            self.assertNotEqual(pair, self.get().pair)

    def test_authority_of_user_is_not_renewed(self):
        self.add_secret(OLD)
        self.assertEqual(OLD, self.get().pair)
        self.assertEqual([], self.kube.writes)

    def test_unusable_authority_is_rejected(self):
        self.add_secret(pki.Pair(OLD.certificate,
                                 pki.make('another').key))
        self.assertRaises(errors.Rejected, self.get)
        self.assertEqual([], self.kube.writes)

    def test_changed_authority_is_read_after_invalidate(self):
        self.get()
        self.kube.remove(*WHERE)
        self.add_secret(OLD)
        self.assertNotEqual(OLD, self.get().pair)
        self.authority.invalidate()
        self.assertEqual(OLD, self.get().pair)

    def test_invalidate_during_read(self):
        one, other = pki.make('one'), pki.make('other')
        self.add_secret(one)
        get = self.kube.get

        async def changed_meanwhile(*args, **more):
            found = await get(*args, **more)
            self.kube.get = get
            self.add_secret(other)
            # The watch event comes before the response.
            self.authority.invalidate()
            return found
        self.kube.get = changed_meanwhile
        self.assertEqual(one, self.get().pair)
        self.assertEqual(other, self.get().pair)

    def test_failed_read_is_retried(self):
        self.add_secret(pki.make('one'))
        self.get()
        self.authority.invalidate()
        self.kube.faults.append(lambda *_: errors.Unavailable('away'))
        self.assertRaises(errors.Unavailable, self.get)
        self.kube.faults.clear()
        other = pki.make('other')
        self.add_secret(other)
        self.assertEqual(other, self.get().pair)
