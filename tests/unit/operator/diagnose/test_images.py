# SPDX-License-Identifier: Apache-2.0
"""Images of the operator and of a BMC, and the version of the program."""

import fixtures
from oslotest import base

from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator.diagnose import bmc as bmcs
from sushy_kubevirt.operator.diagnose import images
from sushy_kubevirt.operator import naming
from tests.unit.operator import bodies
from tests.unit.operator import cases
from tests.unit.operator.diagnose import fakes

DIGEST = '@sha256:' + '0' * 64
SAME, OTHER = ('ok', 'ImageFound'), ('warning', 'ImageOfAnotherVersion')


def deployment(*names):
    return fakes.named(naming.OPERATOR, 'system', spec={'template': {'spec': {
        'containers': [{'image': one} for one in names]}}})


class ImagesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.operator.command_line.version', lambda: '1.2.0'))

    def operator(self, *names):
        client = fakes.Client()
        if names:
            client.put(bmc_resources.DEPLOYMENT, deployment(*names))
        return list(images.operator(fakes.reading(client), 'system'))

    def test_operator(self):
        for image, expected in (
                ('x:1.2.0', SAME), ('x:v1.2.0', SAME), ('x:1.2', SAME),
                ('registry:5000/lab/x:1.2.0', SAME),
                ('registry:5000/lab/x', SAME), ('registry:5.0/x', SAME),
                ('x:latest', SAME), ('x:main-7', SAME), ('x', SAME),
                ('x' + DIGEST, SAME), ('x:1.1.0' + DIGEST, SAME),
                ('x:1.1.0', OTHER), ('x:1.20', OTHER), ('x:v2.0', OTHER),
                ('x:1.2.0-rc1', OTHER), ('r:5000/x:1.2.0.dev3', OTHER)):
            [found] = self.operator(image)
            self.assertEqual([expected], fakes.brief([found]), image)
            self.assertIn(f'The image of the operator is {image}',
                          found.message)
        self.assertEqual([], self.operator())

    def test_what_to_do(self):
        [found] = self.operator('x:1.1.0')
        self.assertIn('and this program has version 1.2.0.', found.message)
        self.assertIn('helm upgrade', found.remedy)

    def bmc(self, live, **spec):
        bmc, *judged = cases.judged(bodies.body(**spec), {'deployment': live})
        return list(images.bmc(bmcs.Bmc(bmc, {}, *judged)))

    def test_bmc(self):
        self.assertEqual([], self.bmc(None))
        self.assertEqual([SAME], fakes.brief(
            self.bmc(deployment('x:1.2.0', 'x:1.2.0'))))
        [found] = self.bmc(deployment('x:1.1.0', 'x:1.1.0'))
        self.assertEqual([OTHER], fakes.brief([found]))
        self.assertIn('(--image)', found.remedy)
        [found] = self.bmc(deployment('x:1.1.0'), image='x:1.1.0')
        self.assertIn('spec.image', found.remedy)

    def test_same_version_in_other_words(self):
        self.assertEqual(images.number('1.2.0.0rc1'),
                         images.number('1.2.0-rc1'))
        self.assertNotEqual(images.number('0.0.1.dev8'),
                            images.number('0.0.1.dev9'))
