# SPDX-License-Identifier: Apache-2.0
"""Violations of the Pod Security Standards, with Kubernetes' messages."""

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

    def violations_after(self, change):
        spec = copy.deepcopy(GOOD)
        change(spec, spec['containers'][0], spec['containers'][0][
            'securityContext'])
        return podsecurity.violations(spec)

    def test_accepts_pod_that_meets_all_controls(self):
        self.assertEqual([], podsecurity.violations(GOOD))
        self.assertEqual([], self.violations_after(
            lambda spec, one, context: context.update(
                procMount='Default', privileged=False,
                appArmorProfile={'type': 'RuntimeDefault'},
                seLinuxOptions={'type': 'container_t', 'level': 's0'})))

    def test_refuses_violations_of_baseline(self):
        for change, text in (
                (lambda spec, one, context: spec.update(
                    hostNetwork=True, hostPID=True),
                 'host namespaces (hostNetwork=true, hostPID=true)'),
                (lambda spec, one, context: spec.update(hostIPC=True),
                 'host namespaces (hostIPC=true)'),
                (lambda spec, one, context: context.update(privileged=True),
                 'privileged (container "c" must not set '
                 'securityContext.privileged=true)'),
                (lambda spec, one, context: one.update(
                    ports=[{'containerPort': 1, 'hostPort': 80}]),
                 'hostPort (container "c" uses hostPort 80)'),
                (lambda spec, one, context: one.update(
                    livenessProbe={'httpGet': {'host': '192.0.2.1'}},
                    lifecycle={'preStop': {'tcpSocket': {'host': 'a'}}}),
                 'probe or lifecycle host (container "c" uses probe or '
                 'lifecycle hosts "192.0.2.1", "a")'),
                (lambda spec, one, context: context.update(
                    windowsOptions={'hostProcess': True}),
                 'hostProcess (container "c" must not set '
                 'securityContext.windowsOptions.hostProcess=true)'),
                (lambda spec, one, context: spec['securityContext'].update(
                    appArmorProfile={'type': 'Unconfined'}),
                 'forbidden AppArmor profile (pod must not set AppArmor '
                 'profile type to "Unconfined")'),
                (lambda spec, one, context: context.update(
                    procMount='Unmasked'),
                 'procMount (container "c" must not set '
                 'securityContext.procMount to "Unmasked")'),
                (lambda spec, one, context: (
                    spec['securityContext'].update(
                        seLinuxOptions={'user': 'u'}),
                    context.update(seLinuxOptions={'type': 'spc_t'})),
                 'seLinuxOptions (pod and container "c" set forbidden '
                 'securityContext.seLinuxOptions: type "spc_t"; user may not '
                 'be set)'),
                (lambda spec, one, context: spec['securityContext'].update(
                    sysctls=[{'name': 'kernel.sem', 'value': '1'}]),
                 'forbidden sysctls (kernel.sem)')):
            with self.subTest(text):
                self.assertEqual([text], self.violations_after(change))

    def test_refuses_unconfined_apparmor_annotation(self):
        name = 'container.apparmor.security.beta.kubernetes.io/c'
        for value in ('', 'runtime/default', 'localhost/profile'):
            self.assertEqual([], podsecurity.violations(GOOD, {name: value}))
        self.assertEqual(
            ['forbidden AppArmor profile (annotation must not set AppArmor '
             f'profile type to "{name}="unconfined"")'],
            podsecurity.violations(GOOD, {name: 'unconfined', 'other': 'a'}))

    def test_refuses_violations_of_restricted(self):
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
                (lambda spec, one, context: (
                    spec['securityContext'].update(runAsNonRoot=False),
                    context.update(runAsNonRoot=True)),
                 'runAsNonRoot != true (pod must not set '
                 'securityContext.runAsNonRoot=false)'),
                (lambda spec, one, context: context.update(runAsUser=0),
                 'runAsUser=0 (container "c" must not set runAsUser=0)'),
                (lambda spec, one, context: spec['securityContext'].pop(
                    'seccompProfile'),
                 'seccompProfile (pod or container "c" must set '
                 'securityContext.seccompProfile.type to "RuntimeDefault" '
                 'or "Localhost")'),
                (lambda spec, one, context: (
                    spec['securityContext'].update(
                        seccompProfile={'type': 'Unconfined'}),
                    context.update(
                        seccompProfile={'type': 'RuntimeDefault'})),
                 'seccompProfile (pod must not set securityContext.'
                 'seccompProfile.type to "Unconfined")'),
                (lambda spec, one, context: spec['volumes'].append(
                    {'name': 'h', 'hostPath': {'path': '/'}}),
                 'restricted volume types (volume "h" uses restricted volume '
                 'type "hostPath")')):
            with self.subTest(text):
                self.assertEqual([text], self.violations_after(change))


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

    def test_enforces_only_level_restricted_at_creation(self):
        self.pod('before')
        self.label(warn='restricted', enforce='baseline')
        self.pod('other-level')
        self.label(enforce='restricted')
        exc = self.assertRaises(errors.ApiError, self.pod, 'refused')
        self.assertEqual(403, exc.code)
        self.assertIn('violates PodSecurity "restricted:latest": '
                      'allowPrivilegeEscalation != false', str(exc))
        # An update is not a creation.
        self.store.change(core.POD, 'default', 'before', lambda obj: obj[
            'metadata'].update(labels={'a': 'b'}))
