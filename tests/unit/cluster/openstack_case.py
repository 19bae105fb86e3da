# SPDX-License-Identifier: Apache-2.0
"""A test case with HTTP exchanges of openstacksdk."""

import openstack
from oslotest import base
from requests_mock.contrib import fixture

URL = 'http://openstack.test'


class OpenStackTestCase(base.BaseTestCase):
    """A test case with ``cloud``, a connection, and ``http``, its mock."""

    def setUp(self):
        super().setUp()
        self.http = self.useFixture(fixture.Fixture())
        self.cloud = openstack.connection.Connection(
            auth_type='none', auth={'endpoint': URL},
            **{f'{service}_endpoint_override': f'{URL}/{service}/{version}'
               for service, version in (
                   ('baremetal', 'v1'), ('compute', 'v2.1'),
                   ('placement', ''), ('image', 'v2'))},
            compute_status_code_retries=0)
        self.addCleanup(self.cloud.close)
        self._discovery('baremetal', 'v1', '1.1', '1.99')
        self._discovery('compute', 'v2.1', '2.1', '2.96')
        self._discovery('image', 'v2', '', '')
        self.http.get(f'{URL}/placement/', json={'versions': [{
            'id': 'v1.0', 'status': 'CURRENT', 'min_version': '1.0',
            'max_version': '1.39', 'links': [{'rel': 'self', 'href': ''}]}]})

    def _discovery(self, service, version, oldest, newest):
        for path in (f'/{service}', f'/{service}/{version}',
                     f'/{service}/{version}/'):
            self.http.get(URL + path, json={'versions': [{
                'id': version, 'status': 'CURRENT', 'min_version': oldest,
                'version': newest, 'links': [{
                    'rel': 'self', 'href': f'{URL}/{service}/{version}/'}]}]})

    def requests(self, *methods):
        """Return the requests, without the query of versions.

        :returns: list of method and path
        """
        return [(one.method, one.path) for one in self.http.request_history
                if one.method in methods]
