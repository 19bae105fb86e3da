# SPDX-License-Identifier: Apache-2.0
"""BMCs with impossible specs, and users who make rapid changes."""

import json
import time

from tests.fixtures import operator

# Specs that the definition allows and the cluster or the operator refuses,
# each with a word of the status's message.
REFUSED = (
    ({'service': {'type': 'NodePort', 'nodePorts': {'redfish': 70}}},
     'range'),
    ({'virtualMedia': {'allowedHosts': ['10.0.0.1/8']}}, 'host bits set'),
    ({'virtualMedia': {'allowedHosts': ['0x7f']}}, 'is not a valid host'),
    ({'redfish': {'tls': {'secretName': 'missing'}}}, 'missing'),
    ({'nodeSelector': {'example.test/none': 'x'}}, 'is starting'),
    ({'image': 'evil.test/x'}, 'evil.test/x'),
)

# Unusual specs that are valid.
UNUSUAL = (
    {'service': {'annotations': {'bmc.kubevirt.io/applied': 'x'}}},
    {'service': {'annotations': {'kubernetes.io/x': '\n"\'\\'}}},
    {'service': {'ports': {'redfish': 623, 'ipmi': 623}}},
    {'resources': {'redfish': {'limits': {'memory': '1024Mi',
                                          'cpu': '1000m'}}}},
    {'tolerations': [{'operator': 'Exists'}]},
)


class HostileTestCase(operator.OperatorTestCase):

    SANDBOX = ('--pods', 'pretended')

    def setUp(self):
        super().setUp()
        self.sandbox.reset_stats()
        self.vm()
        self.secret()

    def make(self, number, spec):
        name = f'box-{number}'
        self.kubectl.apply(operator.bmc_manifest(
            name, 'box', 'box-bmc', **spec))
        return operator.Bmc(self.kubectl, name, 'admin', None)

    def writes(self):
        """Count the writes of the next two seconds, by verb and resource."""
        self.sandbox.reset_stats()
        time.sleep(2)
        calls = self.sandbox.stats()['calls']
        return {(verb, what): count for verb in (
            'create', 'patch', 'update', 'delete')
            for what, count in calls.get(verb, {}).items()
            if not what.startswith('leases')}

    def assert_few_writes(self, most):
        """Check that the operator writes at most so often in two seconds.

        Those begin when it has written as little for two seconds: Events
        follow what they report, and BMCs of the test before are deleted in
        the background.
        """
        self.until('few writes',
                   lambda: sum(self.writes().values()) <= most)
        writes = self.writes()
        self.assertLessEqual(sum(writes.values()), most, writes)

    def is_refused(self, bmc, word):
        """Return whether a BMC is not ready and its message has a word."""
        return ((bmc.condition() or ('',))[0] == 'False'
                and word in bmc.message())

    def test_unusable_user_names_are_refused(self):
        box = self.make(1, {})
        for name, said in (('root:wheel', 'without colons'),
                           ('r' * 17, 'up to 16 bytes')):
            self.secret(username=name)
            self.until('condition', box.condition, ('False', 'SecretUnusable'))
            self.until('message', lambda said=said: said in box.message())
            self.assertIn('under username', box.message())
            self.assertNotIn(name, json.dumps(box.resource)
                             + self.kubectl('describe', 'vmbmc', box.name))
            self.secret()
            box.ready()

    def test_wrong_specs_are_reported(self):
        good = self.make(99, {})
        bmcs = [self.make(*each) for each in enumerate(
            spec for spec, _ in REFUSED)]
        for bmc, (spec, word) in zip(bmcs, REFUSED):
            self.until(spec, lambda bmc=bmc, word=word: self.is_refused(
                bmc, word))
        good.ready()
        # The operator tries again, with growing pauses.
        time.sleep(6)
        self.assert_few_writes(len(REFUSED) * 2)
        for bmc, (spec, _) in zip(bmcs, REFUSED):
            bmc.patch(**dict.fromkeys(spec))
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=60s')
        # A BMC that was ready keeps working when its spec becomes invalid.
        for bmc, (spec, word) in zip(bmcs, REFUSED):
            bmc.patch(**spec)
        for bmc, (spec, word) in zip(bmcs, REFUSED):
            self.until(spec, lambda bmc=bmc: bmc.condition()[0], 'False')
            if 'nodeSelector' in spec:
                continue
            self.assertEqual(1, self.kubectl.get(
                'deployment', bmc.base)['status'].get('availableReplicas'),
                spec)
        self.kubectl('delete', 'vmbmc', '--all')
        self.until('nothing left', self.owned, [])
        self.assertNotIn('Traceback', self.operator.process.output)

    def test_unusual_specs_work(self):
        bmcs = [self.make(*each) for each in enumerate(UNUSUAL)]
        for bmc in bmcs:
            bmc.ready()
        self.assert_few_writes(0)
        self.assert_no_warnings()

    def test_rapid_changes(self):
        """BMCs are changed, deleted and recreated without waiting."""
        box = self.make(0, {})
        for number in range(12):
            box.patch(runStrategy=('Manual', 'Always')[number % 2],
                      service={'type': ('ClusterIP', 'NodePort')[number % 2]},
                      redfish={'plainHTTP': number % 3 == 0})
        box.current()
        self.assertEqual('NodePort', self.kubectl.get(
            'service', box.base)['spec']['type'])
        for _ in range(4):
            self.kubectl('replace', '--force', '-f', '-', stdin=json.dumps(
                operator.bmc_manifest('box-0', 'box', 'box-bmc')))
        box.ready()
        uid = box.resource['metadata']['uid']
        self.until('owner references', lambda: {
            owner['uid'] for one in self.kubectl.get(
                'deployment,service,role,rolebinding,serviceaccount,'
                'configmap,secret', '-l', operator.LABEL + 'box-0')['items']
            for owner in one['metadata']['ownerReferences']
            if owner['kind'] == 'VirtualMachineBMC'}, {uid})
        self.assert_few_writes(0)

    def test_orphans_are_not_adopted(self):
        """Objects of a BMC deleted with ``orphan`` are foreign to the next."""
        box = self.make(0, {})
        box.ready()
        self.kubectl('delete', 'vmbmc', 'box-0', '--cascade=orphan')
        self.assertEqual(1, len(self.kubectl.names('deployments')))
        box = self.make(0, {})
        self.until('condition', box.condition, ('False', 'NameTaken'))
        self.assert_few_writes(0)
        self.kubectl('delete', operator.OWNED, '-l',
                     operator.LABEL + 'box-0')
        box.ready()

    def test_lost_ca_is_restored_or_replaced(self):
        """The CA's Secret is restored while the operator runs.

        After a restart there is a new CA, and all certificates are replaced.
        """
        boxes = [self.make(number, {}) for number in range(3)]
        for box in boxes:
            box.ready()
        before = [self.ca(box) for box in boxes]
        system = self.admin.within(operator.NAMESPACE)
        secret = system.get('secret', 'sushy-kubevirt-ca')['data']
        system('delete', 'secret', 'sushy-kubevirt-ca')
        boxes[0].patch(service={'type': 'NodePort'})
        self.until('restored', lambda: system.run(
            'get', 'secret', 'sushy-kubevirt-ca').returncode, 0)
        self.assertEqual(secret, system.get('secret', 'sushy-kubevirt-ca')[
            'data'])
        self.operator.process.send(15)
        self.assertEqual(0, self.operator.process.wait())
        system('delete', 'secret', 'sushy-kubevirt-ca')
        self.operator.process.restart()
        self.until('new certificates', lambda: [
            box.name for box, old in zip(boxes, before)
            if set(self.ca(box)) & set(old)], [])
        self.assertEqual(1, len({self.ca(box)[0] for box in boxes}))
        self.assert_few_writes(0)

    def ca(self, box):
        """Return the certificates of the CA and of a BMC."""
        return (self.kubectl.get('configmap', box.base + '-ca')['data'][
            'ca.crt'], self.kubectl.get('secret', box.base + '-tls')['data'][
                'tls.crt'])
