# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import permissions

IMAGE = 'registry.test:5000/lab/virtbmc'

# (image, patterns, whether it is allowed)
IMAGES = (
    (IMAGE, (IMAGE,), True),
    (IMAGE + ':2', (IMAGE,), True),
    (IMAGE + '@sha256:0a', (IMAGE,), True),
    (IMAGE + ':2@sha256:0a', (IMAGE,), True),
    (IMAGE + '-evil:2', (IMAGE,), False),
    (IMAGE + '/evil', (IMAGE,), False),
    ('registry.test/lab/virtbmc', (IMAGE,), False),
    ('evil.test/registry.test:5000/lab/virtbmc', (IMAGE,), False),
    ('virtbmc:1', ('virtbmc',), True),
    (IMAGE + ':2', ('registry.test:5000/lab/*',), True),
    ('registry.test:5000/laboratory/a', ('registry.test:5000/lab/*',), False),
    # A pattern matches whole path components only.
    (IMAGE, ('registry.test:5000/la*',), False),
    (IMAGE, ('a', IMAGE), True),
    ('a', ('*',), True),
    ('a', (), False),
)

# (annotation, namespace of the BMC, whether the reference is permitted)
REFERENCES = (
    (None, 'far', True),
    (None, 'lab', False),
    ('', 'lab', False),
    ('lab', 'lab', True),
    ('other, lab', 'lab', True),
    (' lab ,', 'lab', True),
    ('laboratory', 'lab', False),
    ('other', 'lab', False),
    # Patterns are not supported.
    ('*', 'lab', False),
    ('lab*', 'lab', False),
    (7, '7', False),
)


class PermissionsTestCase(base.BaseTestCase):

    def test_image_allowed(self):
        for image, patterns, expected in IMAGES:
            with self.subTest(image=image, patterns=patterns):
                self.assertEqual(expected, permissions.image_allowed(
                    image, patterns))

    def test_reference_permitted(self):
        for annotation, namespace, expected in REFERENCES:
            metadata = {'namespace': 'far'}
            if annotation is not None:
                metadata['annotations'] = {
                    stored_names.ALLOW_FROM: annotation}
            with self.subTest(annotation=annotation, namespace=namespace):
                self.assertEqual(expected, permissions.reference_permitted(
                    namespace, {'metadata': metadata}))
