# SPDX-License-Identifier: Apache-2.0
"""Pods under security context constraints, without processes."""

import copy
import unittest

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.workloads import security_constraints

ANNOTATIONS = {
    'openshift.io/sa.scc.uid-range': '1000660000/10000',
    'openshift.io/sa.scc.supplemental-groups': '1000660000/10000',
    'openshift.io/sa.scc.mcs': 's0:c26,c5'}


def pod(context=None, container=None, **spec):
    return {'metadata': {'generateName': 'box-'}, 'spec': {
        'securityContext': context or {},
        'containers': [{'name': 'one', 'securityContext': container or {}}],
        **spec}}


class AdmissionTestCase(unittest.TestCase):

    def admit(self, made):
        security_constraints._admit(made, ANNOTATIONS)
        return made

    def test_fills_in_what_the_namespace_has(self):
        found = self.admit(pod())
        self.assertEqual('restricted-v2', found['metadata']['annotations'][
            'openshift.io/scc'])
        self.assertEqual(
            {'fsGroup': 1000660000, 'seLinuxOptions': {'level': 's0:c26,c5'},
             'seccompProfile': {'type': 'RuntimeDefault'}},
            found['spec']['securityContext'])
        self.assertEqual(
            {'runAsUser': 1000660000, 'runAsNonRoot': True,
             'allowPrivilegeEscalation': False,
             'capabilities': {'drop': ['ALL']}},
            found['spec']['containers'][0]['securityContext'])
        # An admitted pod is admitted as it is.
        again = copy.deepcopy(found)
        self.assertEqual(found, self.admit(again))

    def test_namespace_without_annotations(self):
        for missing in ANNOTATIONS.keys() - {security_constraints.GIDS}:
            with self.assertRaises(errors.ApiError) as caught:
                security_constraints._admit(pod(), {
                    **ANNOTATIONS, missing: ''})
            self.assertEqual(403, caught.exception.code)
            self.assertIn(f'unable to find annotation {missing}',
                          caught.exception.message)
        made = pod()
        security_constraints._admit(made, {
            **ANNOTATIONS, security_constraints.GIDS: ''})
        self.assertEqual(1000660000, made['spec']['securityContext'][
            'fsGroup'])

    def test_user_of_the_range(self):
        for made in (pod({'runAsUser': 1000669999}),
                     pod(container={'runAsUser': 1000669999})):
            self.assertEqual(
                (1000669999, 0, 1000660000), security_constraints.identity(
                    self.admit(made)['spec'], made['spec']['containers'][0]))

    def test_refused(self):
        for made, text in (
                (pod({'runAsUser': 65532}),
                 '.containers[0].runAsUser: Invalid value: 65532: must be in '
                 'the ranges: [1000660000, 1000669999]'),
                (pod(container={'runAsUser': 1000670000}),
                 '.containers[0].runAsUser: Invalid value: 1000670000'),
                (pod({'fsGroup': 65532}),
                 '.spec.securityContext.fsGroup: Invalid value: '
                 '[]int64{65532}: 65532 is not an allowed group'),
                (pod(hostNetwork=True), 'Host Network is not allowed'),
                (pod(volumes=[{'name': 'a', 'hostPath': {'path': '/'}}]),
                 'hostPath volumes are not allowed'),
                (pod(container={'privileged': True}), 'privileged'),
                (pod(container={'allowPrivilegeEscalation': True}),
                 'allowPrivilegeEscalation'),
                (pod(container={'capabilities': {'add': ['SYS_ADMIN']}}),
                 '"SYS_ADMIN": capability may not be added')):
            with self.subTest(text), self.assertRaises(
                    errors.ApiError) as caught:
                self.admit(made)
            self.assertEqual(403, caught.exception.code)
            self.assertIn('pods "box-" is forbidden: unable to validate '
                          'against any security context constraint',
                          caught.exception.message)
            self.assertIn('provider restricted-v2: ',
                          caught.exception.message)
            self.assertIn(text, caught.exception.message)
