# SPDX-License-Identifier: Apache-2.0
"""A thousand VMs must not slow down a client noticeably.

The bounds are several times what an idle machine needs, so that a busy one
passes; what is guarded against is work that grows with the number of VMs.
"""

import json
import time

from tests.functional import base
from tests.functional import sandbox

VMS = sandbox.path('virtualmachines')


class ScaleTestCase(base.FunctionalTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.share(sandbox.Sandbox(vms=1000))

    def best(self, call, times=10):
        """The shortest time that a call took, in seconds."""
        found = []
        for number in range(times):
            begin = time.perf_counter()
            call(number)
            found.append(time.perf_counter() - begin)
        return min(found)

    def get(self, path):
        return self.sandbox.request('GET', path, expect=200)

    def test_lists_and_writes(self):
        self.assertEqual(1000, len(self.get(VMS).json()['items']))
        self.assertLess(self.best(lambda n: self.get(VMS)), 0.4)
        self.assertLess(self.best(lambda n: self.get(
            VMS + '?fieldSelector=metadata.name=vm-7')), 0.1)
        self.assertLess(self.best(lambda n: self.get(VMS + '/vm-7')), 0.03)
        self.assertLess(self.best(lambda n: self.sandbox.patch(
            'virtualmachines', 'vm-7',
            {'metadata': {'annotations': {'n': str(n)}}})), 0.05)

    def test_pages(self):
        names, token = [], ''
        while True:
            body = self.get(f'{VMS}?limit=300&continue={token}').json()
            names += [i['metadata']['name'] for i in body['items']]
            token = body['metadata'].get('continue')
            if not token:
                break
        self.assertEqual(sorted(f'vm-{n}' for n in range(1000)), names)

    def test_many_watches_see_each_change_once(self):
        version = self.get(VMS + '?limit=1').json()['metadata'][
            'resourceVersion']
        watches = [self.sandbox.request(
            'GET', f'{VMS}?watch=1&timeoutSeconds=20&fieldSelector='
            f'metadata.name=vm-9&resourceVersion={version}', stream=True)
            for _ in range(20)]
        for watch in watches:
            self.addCleanup(watch.close)
        for number in range(5):
            self.sandbox.patch('virtualmachines', 'vm-9', {
                'metadata': {'annotations': {'seen': str(number)}}})
        for watch in watches:
            seen = []
            for line in watch.iter_lines():
                annotations = json.loads(line)['object']['metadata'][
                    'annotations']
                if 'seen' in annotations:
                    seen.append(annotations['seen'])
                if len(seen) == 5:
                    break
            self.assertEqual(list('01234'), seen)
