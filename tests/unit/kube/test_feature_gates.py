# SPDX-License-Identifier: Apache-2.0
"""Feature gates as KubeVirt evaluates them, and without permission to read."""

import threading

from oslotest import base

from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import feature_gates
from sushy_kubevirt.machine import options
from tests.unit.machine import api


class GatesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.api = api.Api()
        self.api.start()
        self.addCleanup(self.api.stop)

    def kubevirt(self, version, named=(), disabled=()):
        self.api.put('kubevirts', {
            'metadata': {'name': 'kubevirt', 'namespace': 'kubevirt'},
            'spec': {'configuration': {'developerConfiguration': {
                'featureGates': list(named),
                'disabledFeatureGates': list(disabled)}}},
            'status': {'observedKubeVirtVersion': version}})

    def gates(self, **opts):
        opts = options.Options(**opts)
        return feature_gates.Gates(client.Client(
            self.api.connection(), opts), opts.gates_seconds)

    def test_gate_by_version_and_configuration(self):
        for version, named, disabled, on in (
                ('v1.9.0', (), (), True),
                ('v1.9.0', (), ('RebootPolicy',), False),
                ('v1.9.0', ('RebootPolicy',), ('RebootPolicy',), True),
                ('v1.10.1', (), (), True),
                ('v2.0.0', (), (), True),
                ('v1.8.2', (), (), False),
                ('v1.8.2', ('RebootPolicy',), (), True),
                ('v1.7.0', ('RebootPolicy',), (), False),
                ('v0.0.0-master+1', ('RebootPolicy',), (), True),
                ('v0.0.0-master+1', (), (), False),
                (None, ('RebootPolicy',), (), True),
                (None, (), (), False)):
            self.kubevirt(version, named, disabled)
            gates = self.gates()
            self.assertIs(on, gates.enabled('RebootPolicy'),
                          (version, named, disabled))
            self.assertEqual(version, gates.version)

    def test_why_no_cdrom_hotplug(self):
        gate = 'DeclarativeHotplugVolumes'
        for version, named, disabled, texts in (
                ('v1.9.0', (), (), ()),
                ('v1.8.0', (gate,), (), ()),
                ('v1.9.0', (), (gate,), (gate + ' is off; switch it on',)),
                ('v1.8.0', (), (), (gate + ' is off',)),
                ('v1.9.0', ('HotplugVolumes',), (),
                 ('HotplugVolumes, which excludes', f'replace it by {gate}')),
                ('v1.5.2', (gate,), (), ('KubeVirt v1.5.2 does not', '1.6')),
                ('v1.5.2', ('HotplugVolumes',), (), (
                    'KubeVirt v1.5.2 does not', 'update it to 1.6'))):
            self.kubevirt(version, named, disabled)
            gates = self.gates()
            self.assertEqual('', gates.why_no_cdrom_hotplug())
            found = not gates.hotplugs_cdroms()
            why = gates.why_no_cdrom_hotplug()
            self.assertIs(found, bool(why), (version, named, disabled))
            for text in texts:
                self.assertIn(text, why)

    def test_why_no_cdrom_hotplug_is_read_again(self):
        self.kubevirt('v1.8.0')
        gates = self.gates(gates_seconds=-1)
        self.assertFalse(gates.hotplugs_cdroms())
        self.kubevirt('v1.8.0', ('DeclarativeHotplugVolumes',))
        gates.why_no_cdrom_hotplug()
        for thread in threading.enumerate():
            if thread.name == 'kubevirt-version':
                thread.join()
        self.assertEqual('', gates.why_no_cdrom_hotplug())

    def test_default_interface(self):
        self.assertEqual('bridge', self.gates().pod_interface())
        self.kubevirt('v1.9.0')
        self.assertEqual('bridge', self.gates().pod_interface())
        self.api.put('kubevirts', {
            'metadata': {'name': 'kubevirt', 'namespace': 'kubevirt'},
            'spec': {'configuration': {'network': {
                'defaultNetworkInterface': 'masquerade'}}}})
        self.assertEqual('masquerade', self.gates().pod_interface())

    def test_target_version_until_kubevirt_is_deployed(self):
        for status, version, on in (
                ({'targetKubeVirtVersion': 'v1.9.0'}, 'v1.9.0', True),
                ({'targetKubeVirtVersion': 'v1.9.0',
                  'observedKubeVirtVersion': 'v1.8.0'}, 'v1.8.0', False),
                ({}, None, False)):
            self.api.put('kubevirts', {
                'metadata': {'name': 'kubevirt', 'namespace': 'kubevirt'},
                'spec': {}, 'status': status})
            gates = self.gates()
            self.assertIs(on, gates.enabled('RebootPolicy'), status)
            self.assertEqual(version, gates.version)

    def test_disabled_if_reading_is_forbidden(self):
        self.kubevirt('v1.9.0')
        self.api.rule('GET', 'kubevirts', (403, {'message': 'no'}), 9)
        gates = self.gates(gates_seconds=-1)
        self.assertFalse(gates.enabled('RebootPolicy'))
        self.assertFalse(gates.enabled('RebootPolicy'))
        self.assertIsNone(gates.version)
        self.assertIn('grant the BMC', gates.why_no_cdrom_hotplug())

    def test_result_is_cached(self):
        self.kubevirt('v1.9.0')
        gates = self.gates()
        for _ in range(3):
            gates.enabled('RebootPolicy')
            gates.enabled('DeclarativeHotplugVolumes')
        self.assertEqual(1, self.api.count('GET', 'kubevirts'))

    def test_unavailable_if_api_fails(self):
        self.api.rule('GET', 'kubevirts', (503, {}), 9)
        self.assertRaises(errors.Unavailable, self.gates().enabled,
                          'RebootPolicy')

    def test_gate_is_read_after_version_could_not_be(self):
        self.kubevirt('v1.9.0')
        self.api.rule('GET', 'kubevirts', (503, {}), 1)
        gates = self.gates()
        tried = threading.Event()
        refresh = gates._refresh_quietly
        gates._refresh_quietly = lambda: (refresh(), tried.set())
        self.assertIsNone(gates.version)
        self.assertTrue(tried.wait(30))
        self.assertIsNone(gates.version)
        self.assertTrue(gates.enabled('RebootPolicy'))
