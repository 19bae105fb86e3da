# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from sushy_kubevirt.operator import desired_state
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import routes
from tests.unit.operator import bodies
from tests.unit.operator import cases
from tests.unit.operator import test_conditions

STATE = ['Secret']
RBAC = ['ServiceAccount', 'Role', 'RoleBinding']
ALL = ['Service', *STATE, *RBAC, 'ConfigMap', 'Deployment']

DELETED = bodies.body()
DELETED['metadata']['deletionTimestamp'] = '2026-11-21T14:00:00Z'

GOOD, FAR, state = cases.GOOD, cases.FAR, cases.state
NEW = state(deployment=None)
AUTHORITY = facts.Authority(cases.PAIR, 'PEM')

# (VirtualMachineBMC, case, kinds of the desired objects)
CASES = (
    (bodies.body(), GOOD, ALL),
    (bodies.body(), NEW, ALL),
    (DELETED, GOOD, []),
    # The VM does not exist or is being deleted.
    (bodies.body(), state(vm=None),
     [kind for kind in ALL if kind != 'Secret']),
    (bodies.body(), state(vm=bodies.vm(deletionTimestamp='now')),
     [kind for kind in ALL if kind != 'Secret']),
    # No pod is created before the objects that it mounts exist; a running pod
    # is not changed.
    (bodies.body(), state(NEW, secret=None), ALL[:-2]),
    (bodies.body(), state(NEW, certificate=False), ALL[:-2]),
    (bodies.body(), state(secret=None), ALL[:-2]),
    (bodies.body(), state(certificate=False), ALL[:-2]),
    # The pod's token belongs to the existing ServiceAccount.
    (bodies.body(), state(account=None), ALL[:-2]),
    (test_conditions.PLAIN, state(NEW, certificate=False), ALL),
    (bodies.body(redfish={'enabled': False}), state(NEW, certificate=False),
     ['Service', *STATE, *RBAC, 'Deployment']),
    (bodies.body(networkPolicy={'enabled': True}), GOOD,
     [*ALL[:-2], 'NetworkPolicy', 'ConfigMap', 'Deployment']),
    (bodies.cross_namespace(), FAR, ALL[:-2]),
    (bodies.cross_namespace(), state(FAR, copied=True), ALL),
    (bodies.cross_namespace(), state(FAR, deployment=None, copied=True), ALL),
    # A withdrawn permission removes the pod.
    (bodies.cross_namespace(), state(FAR, vm=bodies.vm('far')), ['Service']),
    (bodies.cross_namespace(), state(FAR, secret=bodies.secret('far')),
     ['Service']),
    # A running pod stays if its image is allowed.
    (bodies.body(image='evil'), state(deployment=bodies.deployment('evil')),
     ALL[:-1]),
    (bodies.body(image='evil'), GOOD, ALL[:-2]),
    # Not changed.
    (bodies.body(virtualMedia={'allowedHosts': ['1.2.3.4/8']}), GOOD,
     ALL[:-2]),
    (bodies.body(), state(foreign=('Deployment node-virtbmc',)), ALL[:-2]),
    # A foreign account gets no permissions, and no pod gets a foreign Secret.
    *((bodies.body(), state(foreign=(one,)),
       ['Service', *STATE, 'ServiceAccount'])
      for one in ('ServiceAccount node-virtbmc', 'Secret vm-bmc-state')),
    (bodies.body(), state(foreign=('Service node-virtbmc',)), ALL),
    (bodies.body(), state(authority=AUTHORITY), ['Service', 'ConfigMap',
                                                 *ALL[1:]]),
    (bodies.cross_namespace(), state(FAR, vm=None, authority=AUTHORITY),
     ['Service']),
    (test_conditions.routed(), GOOD, [*ALL, 'Route']),
    (test_conditions.routed(), state(route_problem=routes.MISSING), ALL),
    (bodies.by_ref(), GOOD, ['Service', *ALL]),
    (bodies.by_ref(), state(reserved=True), ALL),
)


def desired(body, case):
    return desired_state.of(*cases.judged(body, case), cases.DEFAULTS)


class DesiredStateTestCase(base.BaseTestCase):

    def test_kinds_of_desired_objects(self):
        for body, state, kinds in CASES:
            with self.subTest(spec=body['spec'], state=state):
                self.assertEqual(kinds, [
                    obj['kind'] for obj in desired(body, state).objects])

    def test_is_deterministic(self):
        # Random content would be reported as drift at each reconcile.
        for body, state, kinds in CASES:
            self.assertEqual(desired(body, state), desired(body, state))

    def test_entry(self):
        shared = test_conditions.shared
        for body, state, has_entry in (
                (bodies.body(), shared(), True), (bodies.body(), GOOD, False),
                (bodies.body(), shared(slot=None), False),
                (bodies.body(), shared(wanted=False), False),
                # The present one is not changed.
                (bodies.body(), {**shared(), 'certificate': False}, False),
                (bodies.body(), {**shared(), 'secret': None}, False)):
            with self.subTest(state=state):
                self.assertEqual(has_entry, bool(desired(body, state).entry))
