# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import permission

# Annotation, namespace of the BMC, whether it is permitted
CASES = (
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


class PermissionTestCase(base.BaseTestCase):

    def test_cases(self):
        for annotation, namespace, wanted in CASES:
            metadata = {'namespace': 'far'}
            if annotation is not None:
                metadata['annotations'] = {permission.ANNOTATION: annotation}
            with self.subTest(annotation=annotation, namespace=namespace):
                self.assertEqual(wanted, permission.permitted(
                    namespace, {'metadata': metadata}))
