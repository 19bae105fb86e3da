# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import permissions

OURS = 'registry.test:5000/lab/virtbmc'

# Image, patterns, whether it is allowed
IMAGES = (
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

# Annotation, namespace of the BMC, whether it is permitted
REFERENCES = (
    (None, 'far', True),
    (None, 'lab', False),
    ('', 'lab', False),
    ('lab', 'lab', True),
    ('other, lab', 'lab', True),
    (' lab ,', 'lab', True),
    ('laboratory', 'lab', False),
    ('other', 'lab', False),
    # No patterns.
    ('*', 'lab', False),
    ('lab*', 'lab', False),
    (7, '7', False),
)


class PermissionsTestCase(base.BaseTestCase):

    def test_images(self):
        for image, patterns, wanted in IMAGES:
            with self.subTest(image=image, patterns=patterns):
                self.assertEqual(wanted, permissions.image_allowed(
                    image, patterns))

    def test_references(self):
        for annotation, namespace, wanted in REFERENCES:
            metadata = {'namespace': 'far'}
            if annotation is not None:
                metadata['annotations'] = {
                    permissions.ANNOTATION: annotation}
            with self.subTest(annotation=annotation, namespace=namespace):
                self.assertEqual(wanted, permissions.reference_permitted(
                    namespace, {'metadata': metadata}))
