# SPDX-License-Identifier: Apache-2.0
"""What Pod Security Standards refuse, in the words of Kubernetes."""

import copy

from oslotest import base

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.workloads import podsecurity
from kubevirt_sandbox.workloads import workload_kinds
from tests.unit.api import base as api

GOOD = {
    'securityContext': {'runAsNonRoot': True,
                        'seccompProfile': {'type': 'RuntimeDefault'}},
    'containers': [{'name': 'c', 'securityContext': {
        'allowPrivilegeEscalation': False,
        'capabilities': {'drop': ['ALL']}}}],
    'volumes': [{'name': 'v', 'emptyDir': {}}]}


class ViolationsTestCase(base.BaseTestCase):

    def look(self, change):
        spec = copy.deepcopy(GOOD)
        change(spec, spec['containers'][0], spec['containers'][0][
            'securityContext'])
        return podsecurity.violations(spec)

    def test_what_is_good(self):
        self.assertEqual([], podsecurity.violations(GOOD))

    def test_restricted(self):
        for change, text in (
                (lambda spec, one, context: context.pop(
                    'allowPrivilegeEscalation'),
                 'allowPrivilegeEscalation != false (container "c" must set '
                 'securityContext.allowPrivilegeEscalation=false)'),
                (lambda spec, one, context: context.pop('capabilities'),
                 'unrestricted capabilities (container "c" must set '
                 'securityContext.capabilities.drop=["ALL"])'),
                (lambda spec, one, context: context['capabilities'].update(
                    add=['NET_BIND_SERVICE', 'SYS_TIME']),
                 'unrestricted capabilities (container "c" must not include '
                 '"SYS_TIME" in securityContext.capabilities.add)'),
                (lambda spec, one, context: spec['securityContext'].pop(
                    'runAsNonRoot'),
                 'runAsNonRoot != true (pod or container "c" must set '
                 'securityContext.runAsNonRoot=true)'),
                (lambda spec, one, context: context.update(runAsUser=0),
                 'runAsUser=0 (container "c" must not set runAsUser=0)'),
                (lambda spec, one, context: spec['securityContext'].pop(
                    'seccompProfile'),
                 'seccompProfile (pod or container "c" must set '
                 'securityContext.seccompProfile.type to "RuntimeDefault" '
                 'or "Localhost")'),
                (lambda spec, one, context: spec['volumes'].append(
                    {'name': 'h', 'hostPath': {'path': '/'}}),
                 'restricted volume types (volume "h" uses restricted volume '
                 'type "hostPath")')):
            with self.subTest(text):
                self.assertEqual([text], self.look(change))


class AdmissionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        server = api.cluster()
        for kind in workload_kinds.KINDS:
            server.register_kind(kind)
        self.store = server.store
        self.store.gates.append(podsecurity.Admission(core.NAMESPACE))

    def label(self, **labels):
        self.store.change(
            core.NAMESPACE, '', 'default', lambda obj: obj['metadata'].update(
                labels={f'pod-security.kubernetes.io/{name}': level
                        for name, level in labels.items()}))

    def pod(self, name):
        return self.store.create(core.POD, {
            'metadata': {'name': name, 'namespace': 'default'},
            'spec': {'containers': [{'name': 'c', 'image': 'i'}]}})

    def test_labels_decide(self):
        self.pod('before')
        self.label(warn='restricted', enforce='baseline')
        self.pod('other-level')
        self.label(enforce='restricted')
        exc = self.assertRaises(errors.ApiError, self.pod, 'refused')
        self.assertEqual(403, exc.code)
        self.assertIn('violates PodSecurity "restricted:latest": '
                      'allowPrivilegeEscalation != false', str(exc))
        # It is not made anew.
        self.store.change(core.POD, 'default', 'before', lambda obj: obj[
            'metadata'].update(labels={'a': 'b'}))
