# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import drift

# (desired object, live object, whether they differ)
CASES = (
    ({'spec': {'a': 1}}, {'spec': {'a': 1, 'b': 2}}, False),
    ({'spec': {'a': 1}}, {'spec': {'a': 2}}, True),
    ({'spec': {'a': 1}}, {'spec': {}}, True),
    ({'spec': {'a': 1}}, {}, True),
    ({'spec': {'a': [{'x': 1}]}}, {'spec': {'a': [{'x': 1, 'y': 2}]}}, False),
    ({'spec': {'a': [{'x': 1}]}}, {'spec': {'a': [{'x': 1}, {}]}}, True),
    ({'spec': {'a': [1, 2]}}, {'spec': {'a': [2, 1]}}, True),
    ({'spec': {'a': {'b': 1}}}, {'spec': {'a': [1]}}, True),
    # Empty values may be missing, and an empty dict allows any content.
    ({'spec': {'a': {}, 'b': [], 'c': '', 'd': None}}, {'spec': {}}, False),
    ({'spec': {'a': {}}}, {'spec': {'a': {'b': 1}}}, False),
    ({'spec': {'a': []}}, {'spec': {'a': [1]}}, True),
    # False is not an empty value.
    ({'automount': False}, {}, True),
    ({'automount': False}, {'automount': False}, False),
    ({'spec': {'limits': {'cpu': '1000m', 'memory': '1024Mi'}}},
     {'spec': {'limits': {'cpu': '1', 'memory': '1Gi'}}}, False),
    ({'spec': {'limits': {'cpu': 1}}}, {'spec': {'limits': {'cpu': '1'}}},
     False),
    ({'spec': {'limits': {'cpu': '500m'}}},
     {'spec': {'limits': {'cpu': '1'}}}, True),
    ({'spec': {'limits': {'cpu': '500m'}}}, {'spec': {'limits': {}}}, True),
    ({'spec': {'a': '1000m'}}, {'spec': {'a': '1'}}, True),
    ({'metadata': {'labels': {'a': 'b'}}},
     {'metadata': {'labels': {'a': 'b', 'c': 'd'}}}, False),
    ({'metadata': {'labels': {'a': 'b'}}}, {}, True),
    ({'metadata': {'annotations': {'a': 'b'}}},
     {'metadata': {'annotations': {'a': 'c'}}}, True),
    ({'metadata': {'ownerReferences': [{'uid': '1'}]}},
     {'metadata': {'ownerReferences': [{'uid': '2'}, {'uid': '1'}]}}, False),
    ({'metadata': {'ownerReferences': [{'uid': '1'}]}}, {}, True),
)


# A live object with fields that other managers may own.
FOREIGN_FIELDS = {'data': {}, 'spec': {
    'selector': {'a': 'b'}, 'replicas': 2, 'loadBalancerIP': '10.0.0.7',
    'externalIPs': ['10.0.0.8'], 'template': {'metadata': {
        'labels': {'a': 'b'}, 'annotations': {
            'kubectl.kubernetes.io/restartedAt': 'now'}}},
    'tls': {'termination': 'reencrypt', 'certificate': 'PEM', 'key': 'PEM'}}}


class CompareTestCase(base.BaseTestCase):

    def test_differs(self):
        for desired, live, differs in CASES:
            with self.subTest(desired=desired, live=live):
                self.assertIs(differs, drift.differs(
                    {'kind': 'Any', 'metadata': {}, **desired},
                    {'metadata': {}, **live}))

    def test_fields_owned_by_other_managers(self):
        restart = {'f:spec': {'f:template': {'f:metadata': {
            'f:annotations': {'.': {}, 'f:restartedAt': {}}}}}}
        for entry, owned in (
                ({'manager': 'kubectl', 'fieldsV1': {
                    'f:spec': {'f:selector': {'f:a': {}}}}}, True),
                ({'manager': 'kubectl', 'fieldsV1': {'f:data': {}}}, True),
                ({'manager': 'kubectl', 'fieldsV1': {
                    'f:metadata': {'f:labels': {}}}}, False),
                ({'manager': 'kubectl', 'fieldsV1': {
                    'f:imagePullSecrets': {}}}, False),
                ({'manager': 'hpa', 'subresource': 'scale', 'fieldsV1': {
                    'f:spec': {'f:replicas': {}}}}, False),
                ({'manager': 'sushy-kubevirt-operator', 'fieldsV1': {
                    'f:spec': {}}}, False),
                # The controller of load balancers.
                ({'manager': 'kube-vip-cloud-provider', 'fieldsV1': {
                    'f:spec': {'f:loadBalancerIP': {}}}}, False),
                ({'manager': 'kubectl', 'fieldsV1': {'f:spec': {
                    'f:loadBalancerIP': {}, 'f:externalIPs': {}}}}, True),
                # The certificate of an ingress controller
                ({'manager': 'openshift-routes', 'fieldsV1': {'f:spec': {
                    'f:tls': {'f:certificate': {}, 'f:key': {}}}}}, False),
                ({'manager': 'oc', 'fieldsV1': {'f:spec': {'f:tls': {
                    'f:certificate': {}, 'f:termination': {}}}}}, True),
                ({'manager': 'oc', 'fieldsV1': {'f:spec': {'f:tls': {}}}},
                 True),
                # kubectl rollout restart
                ({'manager': 'kubectl', 'fieldsV1': restart}, False),
                ({'manager': 'kubectl', 'fieldsV1': {
                    'f:spec': {**restart['f:spec'], 'f:replicas': {}}}},
                 True),
                ({'manager': 'kubectl', 'fieldsV1': {'f:spec': {
                    'f:template': {'f:metadata': {'f:labels': {}}}}}}, True),
        ):
            with self.subTest(entry=entry):
                live = {'metadata': {'managedFields': [entry]},
                        **FOREIGN_FIELDS}
                found = drift.foreign_fields(live)
                self.assertIs(owned, bool(found))
                # The remaining entries are found again.
                self.assertEqual(found, drift.foreign_fields(
                    {**FOREIGN_FIELDS, 'metadata': {'managedFields': found}}))
                self.assertIs(owned, drift.differs(
                    {'kind': 'Any', 'metadata': {}}, live))

    def test_managed_fields_without_value_are_ignored(self):
        for fields, owned in (
                ({'f:externalTrafficPolicy': {}}, False),
                ({'f:externalTrafficPolicy': {}, 'f:type': {}}, True),
                ({'f:ports': {'k:{"port":443,"protocol":"TCP"}': {
                    'f:nodePort': {}}}}, False),
                ({'f:ports': {'k:{"port":443,"protocol":"TCP"}': {
                    '.': {}, 'f:port': {}}}}, True),
                ({'f:ports': {'k:{"port":80,"protocol":"TCP"}': {
                    '.': {}, 'f:port': {}}}}, False),
                ({'f:finalizers': {'v:"a"': {}}}, True),
                ({'f:finalizers': {'v:"b"': {}}}, False)):
            with self.subTest(fields=fields):
                self.assertIs(owned, bool(drift.foreign_fields({
                    'metadata': {'managedFields': [{
                        'manager': 'kubectl-patch',
                        'fieldsV1': {'f:spec': fields}}]},
                    'spec': {'type': 'ClusterIP', 'finalizers': ['a'],
                             'ports': [{'port': 443, 'protocol': 'TCP'}]}})))

    def test_invalid_list_keys_in_managed_fields(self):
        # The deepest nesting that the API server accepts.
        for name in ('v:' + '[' * 9000 + ']' * 9000,
                     'k:' + '{"a":' * 9000 + '1' + '}' * 9000, 'k:[1]',
                     'k:none', 'v:none'):
            with self.subTest(name=name[:20]):
                self.assertEqual([], drift.foreign_fields({
                    'metadata': {'managedFields': [{
                        'manager': 'mallory', 'fieldsV1': {
                            'f:spec': {'f:ports': {name: {}}}}}]},
                    'spec': {'ports': [{'port': 80}]}}))

    def test_must_recreate(self):
        for kind, desired, live, recreate in (
                ('RoleBinding', {'roleRef': {'name': 'a'}},
                 {'roleRef': {'name': 'a'}}, False),
                ('RoleBinding', {'roleRef': {'name': 'a'}},
                 {'roleRef': {'name': 'b'}}, True),
                ('Deployment', {'spec': {'selector': {'a': 'b'}}},
                 {'spec': {'selector': {'a': 'b'}, 'replicas': 2}}, False),
                ('Deployment', {'spec': {'selector': {'a': 'b'}}},
                 {'spec': {}}, True),
                ('Service', {'spec': {'selector': {'a': 'b'}}},
                 {'spec': {}}, False)):
            with self.subTest(kind=kind, live=live):
                self.assertIs(recreate, drift.must_recreate(
                    {'kind': kind, **desired}, live))
