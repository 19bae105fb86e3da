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
    return {'metadata': {'generateName': 'box-', 'namespace': 'lab'}, 'spec': {
        'securityContext': context or {},
        'containers': [{'name': 'one', 'securityContext': container or {}}],
        **spec}}


class AdmissionTestCase(unittest.TestCase):

    def admit(self, made):
        security_constraints._admit(made, ANNOTATIONS)
        return made

    def test_fills_in_what_the_namespace_has(self):
        found = self.admit(pod())
        self.assertEqual(
            {'openshift.io/scc': 'restricted-v2',
             'seccomp.security.alpha.kubernetes.io/pod': 'runtime/default',
             'security.openshift.io/validated-scc-subject-type': 'user'},
            found['metadata']['annotations'])
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
            self.assertIn('error fetching namespace "lab": unable to find '
                          f'annotation {missing}', caught.exception.message)
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

    def test_settings_of_the_pod_and_others_are_kept(self):
        made = self.admit(pod(
            {'runAsNonRoot': True, 'seLinuxOptions': {'level': 's0:c5,c26'}},
            {'capabilities': {'drop': ['KILL']}}))
        self.assertEqual(
            {'runAsUser': 1000660000, 'allowPrivilegeEscalation': False,
             'capabilities': {'drop': ['ALL', 'KILL']}},
            made['spec']['containers'][0]['securityContext'])
        self.assertEqual('s0:c5,c26', made['spec']['securityContext'][
            'seLinuxOptions']['level'])

    def test_windows(self):
        made = pod(os={'name': 'windows'})
        self.assertEqual(copy.deepcopy(made), self.admit(made))

    def test_refused(self):
        """The answers of OpenShift's admission to the same pods."""
        group = '.spec.securityContext'
        box = '.containers[0]'
        seccomp = ('Forbidden: unconfined is not an allowed seccomp profile. '
                   'Valid values are [runtime/default]')
        of_pod, of_container = (
            f'pod.metadata.annotations[{name}]: {seccomp}' for name in (
                'seccomp.security.alpha.kubernetes.io/pod',
                'container.seccomp.security.alpha.kubernetes.io/one'))
        ranges = 'must be in the ranges: [1000660000, 1000669999]'
        unconfined = {'seccompProfile': {'type': 'Unconfined'}}
        for made, *wrong in (
                (pod({'runAsUser': 65532}),
                 f'{box}.runAsUser: Invalid value: 65532: {ranges}'),
                (pod(container={'runAsUser': 0}),
                 f'{box}.runAsUser: Invalid value: 0: {ranges}'),
                (pod({'fsGroup': 65532}),
                 f'{group}.fsGroup: Invalid value: [65532]: 65532 is not an '
                 'allowed group'),
                (pod(unconfined), of_pod, of_container),
                (pod(container=unconfined), of_container),
                (pod({'seLinuxOptions': {'level': 's0:c1,c2'}}),
                 f'{group}.seLinuxOptions.level: Invalid value: "s0:c1,c2": '
                 'must be s0:c26,c5',
                 f'{box}.seLinuxOptions.level: Invalid value: "s0:c1,c2": '
                 'must be s0:c26,c5'),
                (pod(container={'seLinuxOptions': {'type': 'spc_t'}}),
                 f'{box}.seLinuxOptions.level: Invalid value: "": must be '
                 's0:c26,c5',
                 f'{box}.seLinuxOptions.type: Invalid value: "spc_t": must be '
                 ),
                *((pod(**{field: True}), *(
                    f'{path}.{field}: Invalid value: true: Host {text} is not '
                    'allowed to be used' for path in (group, box)))
                  for field, text in (('hostNetwork', 'network'),
                                      ('hostPID', 'PID'),
                                      ('hostIPC', 'IPC'))),
                (pod(containers=[{'name': 'one', 'ports': [
                    {'containerPort': 80, 'hostPort': 8080}]}]),
                 f'{box}{box}.hostPort: Invalid value: 8080: Host ports are '
                 'not allowed to be used'),
                (pod(volumes=[{'name': 'e', 'emptyDir': {}},
                              {'name': 'a', 'nfs': {'path': '/'}}]),
                 'spec.volumes[1]: Invalid value: "nfs": nfs volumes are not '
                 'allowed to be used'),
                (pod(container={'privileged': True}),
                 f'{box}.privileged: Invalid value: true: Privileged '
                 'containers are not allowed'),
                (pod(container={'allowPrivilegeEscalation': True}),
                 f'{box}.allowPrivilegeEscalation: Invalid value: true: '
                 'Allowing privilege escalation for containers is not allowed'
                 ),
                (pod(container={'capabilities': {'add': ['SYS_ADMIN']}}),
                 f'{box}.capabilities.add: Invalid value: "SYS_ADMIN": '
                 'capability may not be added')):
            with self.subTest(wrong), self.assertRaises(
                    errors.ApiError) as caught:
                self.admit(made)
            self.assertEqual(403, caught.exception.code)
            self.assertEqual(
                'pods "box-" is forbidden: unable to validate against any '
                'security context constraint: [provider "anyuid": Forbidden: '
                'not usable by user or serviceaccount, ' + ', '.join(
                    f'provider restricted-v2: {one}' if one[0] == '.' else one
                    for one in wrong),
                caught.exception.message.partition(
                    ', provider restricted-v3: ')[0])
