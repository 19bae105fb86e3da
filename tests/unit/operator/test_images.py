# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import images

OURS = 'registry.test:5000/lab/virtbmc'

# Image, patterns, whether it is allowed
CASES = (
    (OURS, (OURS,), True),
    (OURS + ':2', (OURS,), True),
    (OURS + '@sha256:0a', (OURS,), True),
    (OURS + ':2@sha256:0a', (OURS,), True),
    (OURS + '-evil:2', (OURS,), False),
    (OURS + '/evil', (OURS,), False),
    ('registry.test/lab/virtbmc', (OURS,), False),
    ('evil.test/registry.test:5000/lab/virtbmc', (OURS,), False),
    ('virtbmc:1', ('virtbmc',), True),
    (OURS + ':2', ('registry.test:5000/lab/*',), True),
    ('registry.test:5000/laboratory/a', ('registry.test:5000/lab/*',), False),
    # That would be more than a folder.
    (OURS, ('registry.test:5000/la*',), False),
    (OURS, ('a', OURS), True),
    ('a', ('*',), True),
    ('a', (), False),
)


class ImagesTestCase(base.BaseTestCase):

    def test_cases(self):
        for image, patterns, wanted in CASES:
            with self.subTest(image=image, patterns=patterns):
                self.assertEqual(wanted, images.allowed(image, patterns))
