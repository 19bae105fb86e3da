# SPDX-License-Identifier: Apache-2.0
"""Upgrades, pauses, and failover to a second operator."""

import json
import os
import signal
import threading

import yaml

from kubevirt_sandbox.testing import process
from sushy_kubevirt.kube import stored_names
from tests.fixtures import operator
from tests.fixtures import processes

IMAGE = 'registry.test/emulator:'


class Observer(threading.Thread):
    """Records the largest number of Deployments that are not available."""

    def __init__(self, sandbox, namespace):
        super().__init__(daemon=True)
        self.most = 0
        self._states = {}
        self._session = sandbox.request(
            'GET', f'/apis/apps/v1/namespaces/{namespace}/deployments',
            params={'watch': 'true'}, stream=True, timeout=(5, 120),
            expect=200)

    def run(self):
        try:
            for line in self._session.iter_lines(chunk_size=2 ** 16):
                if line:
                    self._note(yaml.safe_load(line)['object'])
        except Exception:
            # `close` ends the watch.
            return

    def _note(self, deployment):
        status = deployment.get('status') or {}
        self._states[deployment['metadata']['name']] = (
            status.get('observedGeneration', 0)
            >= deployment['metadata']['generation']
            and status.get('availableReplicas', 0) > 0
            and status.get('updatedReplicas', 0) > 0)
        self.most = max(self.most, sum(
            not one for one in self._states.values()))

    def close(self):
        self._session.close()


class UpgradeTestCase(operator.OperatorTestCase):

    SANDBOX = ('--pods', 'pretended')
    ARGUMENTS = ('--image', IMAGE + '1', '--max-unavailable', '2')
    COUNT = 9

    def restart(self, *arguments):
        self.operator.process.send(signal.SIGTERM)
        self.assertEqual(0, self.operator.process.wait())
        self.operator.process.command[:] = [
            *self.operator.command, *arguments]
        self.operator.process.restart()

    def images(self):
        found = {}
        for one in self.kubectl.get('deployments')['items']:
            found[one['metadata']['name'].removesuffix('-virtbmc')] = {
                container['image'].removeprefix(IMAGE) for container in
                one['spec']['template']['spec']['containers']}
        return found

    def setUp(self):
        super().setUp()
        self.names = [f'box-{number}' for number in range(self.COUNT)]
        self.vm()
        self.secret()
        self.kubectl.apply(*[
            operator.bmc_manifest(name, 'box', 'box-bmc')
            for name in self.names])
        self.kubectl.apply(operator.bmc_manifest(
            'own', 'box', 'box-bmc', image=IMAGE + 'own'))
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=60s')
        self.assertEqual({'1'}, set.union(*(
            self.images()[name] for name in self.names)))

    def reasons(self):
        return sorted(next(
            condition['reason'] for condition in one['status']['conditions']
            if condition['type'] == 'BMCEmulatorReady')
            for one in self.kubectl.get('vmbmc')['items'])

    def upgraded(self, *names):
        return {self.images()[name] == {'2'} for name in names} == {True}

    def all_upgraded(self):
        return all(self.images()[name] == {'2'} for name in self.names)

    def test_upgrade_respects_max_unavailable(self):
        observer = Observer(self.sandbox, self.namespace)
        observer.start()
        self.addCleanup(observer.close)
        self.restart('--image', IMAGE + '2', '--max-unavailable', '2')
        self.until('all', self.all_upgraded)
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=60s')
        self.assertEqual({'own'}, self.images()['own'])
        self.assertIn(observer.most, (1, 2))
        self.assert_no_warnings()
        self.restart('--image', IMAGE + '1', '--max-unavailable', '2')
        self.until('former image', lambda: any(
            self.images()[name] == {'2'} for name in self.names), False)

    def test_failing_upgrade_stops(self):
        nodes = self.admin.names('nodes')
        self.admin('cordon', *nodes)
        self.addCleanup(self.admin, 'uncordon', *nodes)
        self.restart('--image', IMAGE + '2', '--max-unavailable', '2')
        self.until('stuck', lambda: self.reasons().count('RolloutWaiting'),
                   self.COUNT - 2)
        # Conditions may be written before the first Deployments change.
        self.until('two', lambda: sum(
            one == {'2'} for one in self.images().values()), 2)
        # The others are available.
        self.until('available', lambda: sum(
            1 for one in self.kubectl.get('deployments')['items']
            if one['status'].get('availableReplicas')), self.COUNT - 2 + 1)
        # A change of the spec does not wait for the rollout.
        waiting = next(name for name in self.names
                       if self.images()[name] == {'1'})
        operator.Bmc(self.kubectl, waiting, '', '').patch(
            runStrategy='Manual')
        self.until('changed', lambda: self.upgraded(waiting))
        self.admin('uncordon', *nodes)
        self.until('all', self.all_upgraded)
        self.kubectl('wait', 'vmbmc', '--all', '--for=condition=Ready',
                     '--timeout=60s')
        self.restart('--image', IMAGE + '1', '--max-unavailable', '2')
        self.until('former image', lambda: any(
            self.images()[name] == {'2'} for name in self.names), False)


class StoppedOperatorTestCase(operator.OperatorTestCase):
    """BMCs work without the operator; it catches up when it starts."""

    def test_changes_while_operator_is_stopped(self):
        box, late, gone = self.bmc(), None, self.bmc('gone')
        box.ready()
        gone.ready()
        self.operator.process.send(signal.SIGTERM)
        self.assertEqual(0, self.operator.process.wait())
        self.assertEqual('', self.admin.get('lease', operator.NAME, '-n',
                                            operator.NAMESPACE)['spec'].get(
                                                'holderIdentity') or '')
        box.password = self.secret()
        self.until('power', lambda: box.curl().code, 200)
        self.until('power', box.works, 'Off')
        pids = self.pids_of('box')
        self.kubectl('delete', 'vmbmc', 'gone')
        late = self.bmc('late', secret=None)
        box.patch(ipmi={'enabled': False})
        self.kubectl('scale', 'deployment/box-virtbmc', '--replicas=2')
        self.kubectl('delete', 'role', 'box-virtbmc')
        self.operator.process.restart()
        late.ready()
        box.current()
        self.until('protocols', lambda: set(box.status['endpoints']),
                   {'redfish'})
        self.until('power', box.power, 'Off')
        self.until('replicas', lambda: self.kubectl.get(
            'deployment', 'box-virtbmc')['spec']['replicas'], 1)
        self.until('role', lambda: bool(self.kubectl.names(
            'roles', '-l', operator.LABEL + 'box')))
        self.until('gone', lambda: self.owned('gone'), [])
        self.assertNotEqual(pids, self.pids_of('box'))
        self.assert_no_warnings()

    def test_upgrade_from_a_container_for_each_protocol(self):
        """Pods of the releases before had the containers redfish and ipmi."""
        box = self.bmc()
        box.ready()
        self.operator.process.send(signal.SIGTERM)
        self.assertEqual(0, self.operator.process.wait())
        old = self.kubectl.get('deployment', box.base)
        [container] = old['spec']['template']['spec']['containers']
        old['spec']['template']['spec']['containers'] = [{
            **container, 'name': name, 'command': ['sushy-kubevirt-' + name],
            'env': [*container['env'], {'name': 'VIRTBMC_HEALTH_PORT',
                                        'value': str(health)}],
            'ports': [port for port in container['ports']
                      if port['name'] == name] + [
                {'name': name + '-health', 'containerPort': health}],
            **{probe: {'httpGet': {'path': '/livez', 'port': health}}
               for probe in ('startupProbe', 'livenessProbe',
                             'readinessProbe')}}
            for name, health in (('redfish', 8081), ('ipmi', 8082))]
        for each in old['spec']['template']['spec']['containers']:
            each['env'] = list({one['name']: one
                                for one in each['env']}.values())
        old['metadata'] = {
            name: old['metadata'][name] for name in (
                'name', 'labels', 'ownerReferences', 'annotations')}
        old['metadata']['annotations'][stored_names.APPLIED] = 'former'
        del old['status']
        self.kubectl('replace', '--field-manager', operator.NAME, '-f', '-',
                     stdin=json.dumps(old))
        self.kubectl('rollout', 'status', 'deployment/' + box.base,
                     '--timeout=60s', timeout=90)
        self.assertEqual(['ipmi', 'redfish'],
                         [name for name, *_ in box.processes()])
        self.operator.process.restart()
        self.until('container', lambda: [
            one['name'] for one in self.kubectl.get('deployment', box.base)[
                'spec']['template']['spec']['containers']], ['bmc'])
        box.ready()
        self.until('power', box.works, 'Off')
        self.assertEqual(['bmc'], [name for name, *_ in box.processes()])
        self.assert_no_warnings()

    def pids_of(self, name):
        uids = [one['metadata']['uid'] for one in self.kubectl.get(
            'pods', '-l', operator.LABEL + name)['items']]
        return {pid for uid in uids for pid in
                set(processes.with_environment(uid))
                & set(process.running('sushy-kubevirt-bmc'))}


class ReplicasTestCase(operator.OperatorTestCase):
    """The operator as it is installed: two pods, one of them the leader.

    Their tokens are short-lived.
    """

    RUNS = False
    SANDBOX = ('--token-seconds', '10')

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.system = cls.admin.within(operator.NAMESPACE)
        cls.system('patch', 'deployment', operator.NAME, '--type=json', '-p',
                   '[{"op": "replace", "path": "/spec/replicas", '
                   '"value": 2}]')
        cls.system('rollout', 'status', 'deployment/' + operator.NAME,
                   '--timeout=60s', timeout=90)

    def holder(self):
        return self.system.get('lease', operator.NAME)['spec'].get(
            'holderIdentity') or ''

    def pods(self):
        return {one['metadata']['name']: one['metadata']['uid']
                for one in self.system.get('pods')['items']}

    def leader(self):
        """Return the name of the pod that holds the Lease, or None."""
        holder = self.holder()
        return next((name for name in self.pods()
                     if holder.startswith(name)), None)

    def test_takeover(self):
        self.until('leader', lambda: self.leader() is not None)
        box = self.bmc().ready()
        self.assertEqual('Off', box.works())
        first = self.leader()
        # A pod that ends releases the Lease: the other one takes over at
        # once, not when the Lease expires in ten seconds or more.
        lease = self.system.get('lease', operator.NAME)
        self.system('delete', 'pod', first, '--wait=false')
        self.until('another', lambda: self.leader() not in (None, first))
        operator.check_takeover(self.sandbox, lease)
        self.bmc('second', 'box').ready()
        # After a kill, the other one takes over when the Lease expires.
        holder = self.holder()
        for pid in processes.with_environment(self.pods()[self.leader()]):
            if pid in process.running(operator.NAME):
                os.kill(pid, signal.SIGKILL)
        self.bmc('third', 'box').ready()
        self.assertNotEqual(holder, self.holder())
        # Both are ready, and their logs have no warnings.
        self.system('rollout', 'status', 'deployment/' + operator.NAME,
                    '--timeout=60s')
        self.assertEqual({}, self.sandbox.stats()['refused'])
        for pod in self.pods():
            for line in self.system('logs', pod).splitlines():
                self.assertIn('"level": "info"', line)

    def test_scaled_to_zero_and_back(self):
        """Scaling to none and back; one replica is enough."""
        self.system('scale', 'deployment', operator.NAME, '--replicas=0')
        self.until('none', self.pods, {})
        box = self.bmc()
        self.system('scale', 'deployment', operator.NAME, '--replicas=1')
        box.ready()
        self.system('scale', 'deployment', operator.NAME, '--replicas=2')
        self.system('rollout', 'status', 'deployment/' + operator.NAME,
                    '--timeout=60s')
