# SPDX-License-Identifier: Apache-2.0
from tests.unit.api import base


class AccessTestCase(base.ServerTestCase):

    async def test_wrong_token_gets_401(self):
        body = await self.call('GET', self.THINGS, expect=401,
                               headers={'Authorization': 'Bearer wrong'})
        self.assertEqual('Unauthorized', body['reason'])

    async def test_request_without_token_is_anonymous(self):
        for headers in ({'Authorization': ''}, {'Authorization': 'Bearer '},
                        {'Authorization': 'Basic ' + self.server.token}):
            body = await self.call('GET', self.THINGS, expect=403,
                                   headers=headers)
            self.assertEqual(
                'things.example.test is forbidden: User "system:anonymous" '
                'cannot list resource "things" in API group "example.test" '
                'in the namespace "default"', body['message'])

    async def test_health_and_version_are_public(self):
        for path in ('/healthz', '/readyz', '/livez'):
            async with self.client.get(
                    path, headers={'Authorization': ''}) as answer:
                self.assertEqual((200, 'ok'),
                                 (answer.status, await answer.text()))
        body = await self.call('GET', '/version',
                               headers={'Authorization': ''}, expect=200)
        self.assertEqual('1', body['major'])

    async def test_self_subject_review(self):
        body = await self.call(
            'POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews',
            {'apiVersion': 'authentication.k8s.io/v1',
             'kind': 'SelfSubjectReview'}, 201)
        self.assertEqual('kubernetes-admin',
                         body['status']['userInfo']['username'])
