# SPDX-License-Identifier: Apache-2.0
"""A thousand VMs must not slow down a client noticeably.

The bounds are several times what an idle machine needs, so that a busy one
passes. They detect work that grows with the number of VMs.
"""

import itertools
import json
import time

from kubevirt_sandbox.testing import case
from kubevirt_sandbox.testing import sandbox

VMS = sandbox.path('virtualmachines')


class ScaleTestCase(case.FunctionalTestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.share(sandbox.Sandbox(vms=1000))

    def assert_takes_less(self, seconds, call):
        """Check the duration of a call; retry on a busy machine."""
        deadline = time.monotonic() + 60
        for number in itertools.count():
            begin = time.perf_counter()
            call(number)
            took = time.perf_counter() - begin
            if took < seconds:
                return
            self.assertLess(time.monotonic(), deadline, took)

    def get(self, path):
        return self.sandbox.request('GET', path, expect=200)

    def test_duration_of_lists_and_writes(self):
        self.assertEqual(1000, len(self.get(VMS).json()['items']))
        self.assert_takes_less(0.4, lambda n: self.get(VMS))
        self.assert_takes_less(0.1, lambda n: self.get(
            VMS + '?fieldSelector=metadata.name=vm-7'))
        self.assert_takes_less(0.03, lambda n: self.get(VMS + '/vm-7'))
        self.assert_takes_less(0.05, lambda n: self.sandbox.patch(
            'virtualmachines', 'vm-7',
            {'metadata': {'annotations': {'n': str(n)}}}))

    def test_pages_of_a_list(self):
        names, token = [], ''
        while True:
            body = self.get(f'{VMS}?limit=300&continue={token}').json()
            names += [i['metadata']['name'] for i in body['items']]
            token = body['metadata'].get('continue')
            if not token:
                break
        self.assertEqual(sorted(f'vm-{n}' for n in range(1000)), names)

    def test_watches_get_each_change_once(self):
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
