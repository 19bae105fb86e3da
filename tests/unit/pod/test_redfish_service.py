# SPDX-License-Identifier: Apache-2.0
import os
from unittest import mock

from oslotest import base

from sushy_kubevirt.pod import redfish_service


class ListenAddressTestCase(base.BaseTestCase):

    def test_pod_listens_on_all_addresses_of_the_family(self):
        for address, wanted in (
                ('10.244.1.7', '0.0.0.0'), ('fd00:10:244::7', '::'),
                ('0.0.0.0', '0.0.0.0'), ('127.54.0.9', '127.54.0.9'),
                ('::1', '::1')):
            with self.subTest(address=address), mock.patch.dict(
                    os.environ, POD_IP=address):
                self.assertEqual(wanted,
                                 redfish_service.listen_address(address))

    def test_others_listen_on_the_configured_address(self):
        with mock.patch.dict(os.environ, POD_IP=''):
            self.assertEqual('10.244.1.7',
                             redfish_service.listen_address('10.244.1.7'))
