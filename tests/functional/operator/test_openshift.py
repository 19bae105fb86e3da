# SPDX-License-Identifier: Apache-2.0
"""The operator and its BMCs under OpenShift's security context constraints.

The sandbox assigns each pod a user of its namespace's range, with group 0, and
starts its processes with these ids: users without an entry in the system's
list, who cannot write to their home.
"""

from tests.fixtures import operator
from tests.fixtures import processes

RANGE = 'openshift.io/sa.scc.uid-range'


class OpenShiftTestCase(operator.OperatorTestCase):

    FOLDER = operator.MANIFESTS / 'overlays' / 'openshift'
    SANDBOX = ('--openshift',)

    def first_user(self, namespace):
        return int(self.admin.get('namespace', namespace)['metadata'][
            'annotations'][RANGE].partition('/')[0])

    def ids(self, pod):
        """Return the real user and group of each process of a pod."""
        found = set()
        for pid in processes.with_environment(pod['metadata']['uid']):
            with open(f'/proc/{pid}/status') as stream:
                lines = dict(line.split(':', 1) for line in stream)
            found.add((int(lines['Uid'].split()[0]),
                       int(lines['Gid'].split()[0])))
        return found

    def test_bmc_has_a_user_of_its_namespace(self):
        bmc = self.bmc()
        bmc.ready()
        [pod] = self.kubectl.get('pods')['items']
        self.assertEqual('restricted-v2', pod['metadata']['annotations'][
            'openshift.io/scc'])
        self.assertEqual({(self.first_user(self.namespace), 0)},
                         self.ids(pod))
        self.until('power', bmc.works, 'Off')
        bmc.ipmi('power', 'on')
        self.sandbox.wait_running('box', self.namespace)
        self.until('power', bmc.works, 'On')


class FixedUserTestCase(operator.OperatorTestCase):
    """The pods of other platforms."""

    SANDBOX = ('--openshift',)
    ARGUMENTS = ('--pod-user', '65532')

    def test_rejection_is_reported(self):
        self.bmc()

        def message():
            return next((
                one['message'] for one in self.kubectl.get('vmbmc', 'box').get(
                    'status', {}).get('conditions', ())
                if one['type'] == 'Ready'), '')
        self.until('reason', lambda: '65532: must be in the ranges' in
                   message())
        self.assertIn('without --pod-user', message())


class OperatorPodTestCase(operator.OperatorTestCase):
    """The operator's own pod."""

    FOLDER = operator.MANIFESTS / 'overlays' / 'openshift'
    SANDBOX = ('--openshift',)
    RUNS = False

    @classmethod
    def install(cls):
        operator.install(cls.admin, cls.FOLDER, replicas=1)

    def test_operator_has_a_user_of_its_namespace(self):
        self.admin.within(operator.NAMESPACE)(
            'rollout', 'status', 'deployment/' + operator.NAME,
            '--timeout=60s', timeout=90)
        self.bmc().ready()
