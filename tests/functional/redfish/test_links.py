# SPDX-License-Identifier: Apache-2.0
"""Every link resolves, in every state of a VM and for every role."""

import json
import re
import xml.etree.ElementTree

import bcrypt
import fixtures

from kubevirt_sandbox.testing import machines
from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import link_crawler
from tests.fixtures import sandbox

_PASSWORD = 'Tests-have-no-secrets-1'
_OPEN = ('/redfish', '/redfish/v1/', '/redfish/v1', '/redfish/v1/odata',
         '/redfish/v1/$metadata')


class TestLinks(base.SandboxTestCase):
    """Two VMs, one of them running."""

    VMS = 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, strategy in ('off', 'Halted'), ('on', 'Always'):
            cls.sandbox.create('virtualmachines', machines.vm(name, strategy))

    def serve(self, **settings):
        """Start an emulator for this test."""
        self.emulator = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), {
                'SUSHY_EMULATOR_KUBEVIRT_STATE_SECRET':
                    sandbox.NAMESPACE + '/sushy-kubevirt-state',
                **settings}, 'gunicorn'))
        return self.emulator

    def get(self, path):
        return self.emulator.request('GET', path, stream=True)

    def crawl(self):
        found = link_crawler.crawl(self.get)
        broken = [f'{code} {path}, linked from {source}'
                  for path, (code, _body, source) in found.items()
                  if code != 200]
        self.assertEqual([], broken)
        return found

    def check_actions(self, found):
        """Check that each action's target exists and allows POST."""
        for _code, body, _source in found.values():
            for target in link_crawler.targets(body):
                answer = self.emulator.request('OPTIONS', target)
                self.assertEqual(200, answer.status_code, target)
                self.assertIn('POST', answer.headers['Allow'], target)

    def check_resources(self, found):
        """Check the required properties; DSP0266, "Resources"."""
        for path, (_code, body, _source) in found.items():
            if body is None or '@odata.id' not in body:
                continue
            self.assertEqual(path.rstrip('/'), body['@odata.id'].rstrip('/'))
            for name in '@odata.type', 'Name', '@odata.etag':
                self.assertIn(name, body, path)
            if 'Members' in body:
                self.assertEqual(body['Members@odata.count'],
                                 len(body['Members']), path)
            else:
                self.assertEqual(
                    path.rstrip('/').rpartition('/')[2]
                    if path != link_crawler.ROOT else body['Id'],
                    body['Id'])

    def check_schemas(self, found):
        """Check that $metadata and JsonSchemas have all types."""
        types = set()
        for _code, body, _source in found.values():
            types.update(re.findall(r'"@odata.type": "#([^"]*)"',
                                    json.dumps(body)))
        answer = self.emulator.request('GET', '/redfish/v1/$metadata')
        root = xml.etree.ElementTree.fromstring(answer.content)
        included = {element.get('Namespace') for element in root.iter()
                    if element.tag.endswith('}Include')}
        namespaces = {one.rpartition('.')[0] for one in types}
        self.assertEqual(set(), namespaces - included)
        files = {path.rpartition('/')[2] for path in found
                 if path.startswith('/redfish/v1/JsonSchemas/')}
        self.assertEqual(set(), namespaces - files)

    def test_links_of_each_feature_set(self):
        numbers = []
        for feature_set in 'minimum', 'vmedia', 'full':
            self.serve(SUSHY_EMULATOR_FEATURE_SET=feature_set)
            found = self.crawl()
            self.check_actions(found)
            numbers.append(len(found))
        self.assertEqual(sorted(set(numbers)), numbers)
        self.check_resources(found)
        self.check_schemas(found)

    def test_links_with_one_vm(self):
        self.serve(SUSHY_EMULATOR_KUBEVIRT_VM=f'{sandbox.NAMESPACE}/off')
        found = self.crawl()
        self.assertFalse([path for path in found if 'on' == path])
        body = found['/redfish/v1/Systems'][1]
        self.assertEqual(1, len(body['Members']))

    def test_links_need_credentials(self):
        path = self.useFixture(fixtures.TempDir()).join('accounts')
        with open(path, 'w') as stream:
            hashed = bcrypt.hashpw(_PASSWORD.encode(), bcrypt.gensalt(4))
            stream.write(f'admin:{hashed.decode()}\n')
        served = self.serve(SUSHY_EMULATOR_AUTH_FILE=path)
        found = link_crawler.crawl(self.get)
        for where, (code, body, _source) in found.items():
            self.assertEqual(200 if where in _OPEN else 401, code, where)
            if code == 401:
                self.assertIn('error', body)
        self.assertGreater(len(found), 3)
        served._session.auth = ('admin', _PASSWORD)
        self.check_schemas(self.crawl())
