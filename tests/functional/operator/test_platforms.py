# SPDX-License-Identifier: Apache-2.0
"""The installation pages of the platforms work as written.

That of Harvester is tested by ``machine/test_harvester`` and
``install/test_manifests``.
"""

import fixtures

from kubevirt_sandbox.testing import given_cluster
from kubevirt_sandbox.testing import kubectl
from tests.fixtures import base
from tests.fixtures import documents
from tests.fixtures import openshift
from tests.fixtures import operator
from tests.fixtures import sandbox


class PageTestCase(base.FunctionalTestCase):

    SANDBOX = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The users of pods can enter its folder, and not that of a test.
        cls.sandbox = cls.share(sandbox.Sandbox(
            vms=0, arguments=cls.SANDBOX))
        cls.admin = kubectl.Kubectl(cls.sandbox.kubeconfig)

    def follow(self, page, home):
        """Run a page's commands.

        :param page: its path
        :param home: folder to run them in
        :returns: {title: output}
        """
        return documents.run(
            [(title, text) for title, text, runs
             in documents.blocks(page.read_text()) if runs],
            home, self.sandbox.kubeconfig)

    def check(self, said, namespace):
        asked = said['Ask it']
        self.assertIn('Chassis Power Control: Up/On', asked)
        self.assertIn('"PowerState":', asked)
        # The garbage collector works in the background.
        self.until(lambda: not self.admin.within(namespace).names(
            operator.OWNED, '-l', operator.LABEL + 'node-0'))


@given_cluster.needs_sandbox('an empty cluster, as in the document')
@operator.other_platforms
class KubernetesTestCase(PageTestCase):

    def test_page(self):
        home = self.useFixture(fixtures.TempDir()).path
        said = self.follow(documents.KUBERNETES, home)
        self.check(said, 'default')
        self.assertRegex(said['Ask it'], r'(?m)^ok +BMC default/node-0: ')
        self.assertRegex(said['Ask it'], r'(?m)^0 problems')


@given_cluster.needs_sandbox('an empty OpenShift cluster')
class OpenShiftTestCase(PageTestCase):

    SANDBOX = ('--openshift',)

    def test_page(self):
        home = fixtures.TempDir()
        self.useFixture(home)
        ingress = openshift.IngressController(
            self.admin, self.sandbox.kubeconfig.parent)
        # Hosts of Routes, as the cluster's DNS resolves them.
        with open(home.join('.curlrc'), 'w') as stream:
            stream.write('connect-to = "node-0-virtbmc-lab.apps.sandbox.test:'
                         f'443:{ingress.address}:443"\n')
        said = self.follow(documents.OPENSHIFT, home.path)
        self.check(said, 'lab')
        self.assertRegex(said['Ask it'], r'(?m)^restricted-v2$')
        self.assertIn('node-0-virtbmc-lab.apps.sandbox.test',
                      said['A machine and its BMC'])
        self.assertEqual([], self.admin.names('deployments', '-A'))
