# SPDX-License-Identifier: Apache-2.0
import dataclasses

from oslotest import base

from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import desired_state
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies
from tests.unit.operator import test_conditions as worlds

DEFAULTS = deployments.Defaults('virtbmc:1')

STATE = ['Secret']
RIGHTS = ['ServiceAccount', 'Role', 'RoleBinding']
ALL = ['Service', *STATE, *RIGHTS, 'ConfigMap', 'Deployment']

DELETED = bodies.body()
DELETED['metadata']['deletionTimestamp'] = '2026-11-21T14:00:00Z'

GOOD, FAR, but = worlds.GOOD, worlds.FAR, worlds.but
NEW = but(deployment=None)

# The resource, what there is, what is to be
CASES = (
    (bodies.body(), GOOD, ALL),
    (bodies.body(), NEW, ALL),
    (DELETED, GOOD, []),
    # The VM comes later, or is gone.
    (bodies.body(), but(vm=None), [kind for kind in ALL if kind != 'Secret']),
    (bodies.body(), but(vm=bodies.vm(deletionTimestamp='now')),
     [kind for kind in ALL if kind != 'Secret']),
    # No pod before what it mounts is there; one that runs is left as it is.
    (bodies.body(), but(NEW, secret=None), ALL[:-2]),
    (bodies.body(), but(NEW, certificate=False), ALL[:-2]),
    (bodies.body(), but(secret=None), ALL[:-2]),
    (bodies.body(), but(certificate=False), ALL[:-2]),
    # Its token is that of the account that there is.
    (bodies.body(), but(account=None), ALL[:-2]),
    (worlds.PLAIN, but(NEW, certificate=False), ALL),
    (bodies.body(redfish={'enabled': False}), but(NEW, certificate=False),
     ['Service', *STATE, *RIGHTS, 'Deployment']),
    (bodies.body(networkPolicy={'enabled': True}), GOOD,
     [*ALL[:-2], 'NetworkPolicy', 'ConfigMap', 'Deployment']),
    (bodies.elsewhere(), FAR, ALL[:-2]),
    (bodies.elsewhere(), but(FAR, copied=True), ALL),
    (bodies.elsewhere(), but(FAR, deployment=None, copied=True), ALL),
    # A permission that is taken back takes the pod with it.
    (bodies.elsewhere(), but(FAR, vm=bodies.vm('far')), ['Service']),
    (bodies.elsewhere(), but(FAR, secret=bodies.secret('far')), ['Service']),
    # One that runs goes on, if it may.
    (bodies.body(image='evil'), but(image_allowed=False), ALL[:-1]),
    (bodies.body(image='evil'), but(image_allowed=False, pod_allowed=True),
     ALL[:-2]),
    # Left as they are.
    (bodies.body(virtualMedia={'allowedHosts': ['1.2.3.4/8']}), GOOD,
     ALL[:-2]),
    (bodies.body(), but(taken=('Deployment node-virtbmc',)), ALL[:-2]),
    # A foreign account gets no permissions, and no pod gets a foreign Secret.
    *((bodies.body(), but(taken=(one,)),
       ['Service', *STATE, 'ServiceAccount'])
      for one in ('ServiceAccount node-virtbmc', 'Secret vm-bmc-state')),
    (bodies.body(), but(taken=('Service node-virtbmc',)), ALL),
)


class WantedTestCase(base.BaseTestCase):

    def test_cases(self):
        for body, world, kinds in CASES:
            with self.subTest(spec=body['spec'], world=world):
                self.assertEqual(kinds, [one['kind'] for one in (
                    desired_state.objects(spec.read(body), world, DEFAULTS))])

    def test_the_same_again(self):
        # Nothing random, or it would be restored again and again.
        for body, world, kinds in CASES:
            bmc = spec.read(body)
            self.assertEqual(desired_state.objects(bmc, world, DEFAULTS),
                             desired_state.objects(
                                 dataclasses.replace(bmc), world, DEFAULTS))
