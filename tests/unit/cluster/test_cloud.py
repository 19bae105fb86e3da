# SPDX-License-Identifier: Apache-2.0
import fixtures
from oslotest import base

from sushy_kubevirt.cluster import cloud
from sushy_kubevirt.cluster import problems


class CloudTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.home = self.useFixture(fixtures.TempHomeDir()).path
        self.useFixture(fixtures.EnvironmentVariable(
            'OS_CLIENT_CONFIG_FILE', f'{self.home}/clouds.yaml'))
        self.useFixture(fixtures.EnvironmentVariable('OS_CLOUD'))

    def test_named_cloud(self):
        with open(f'{self.home}/clouds.yaml', 'w') as stream:
            stream.write('clouds: {lab: {auth_type: none, '
                         'endpoint: "http://ironic.test"}}')
        connection = cloud.connect('lab')
        self.addCleanup(connection.close)
        self.assertEqual('lab', connection.name)

    def test_unknown_cloud(self):
        error = self.assertRaises(problems.ServiceError, cloud.connect, 'lab')
        self.assertIn('lab', str(error))
        self.assertIn('. Set OS_CLOUD to the name of a cloud in clouds.yaml',
                      str(error))
