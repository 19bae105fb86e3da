# SPDX-License-Identifier: Apache-2.0
"""Versions, feature gates, and the table of the documentation."""

import pathlib
import re

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import kinds
from sushy_kubevirt.operator.diagnose import versions
from tests.unit.operator.diagnose import fakes

PAGE = pathlib.Path(__file__).parents[4] / (
    'doc/source/operator/compatibility.rst')

GATES_ON = [('ok', 'FeatureGateOn')] * 2


class VersionsTestCase(base.BaseTestCase):

    def kubernetes(self, version):
        return fakes.brief(versions.kubernetes(
            fakes.reading(fakes.Client(version))))

    def test_kubernetes(self):
        for version, expected in (
                ('v1.29.9', ('problem', 'VersionTooOld')),
                ('v1.30.0', ('ok', 'VersionSupported')),
                ('v1.37.2+k3s1', ('ok', 'VersionSupported')),
                ('v1.38.0', ('warning', 'VersionNotTested')),
                ('devel', ('warning', 'VersionUnknown'))):
            self.assertEqual([expected], self.kubernetes(version))

    def test_refused_credentials_are_no_missing_right(self):
        client = fakes.Client()

        def refuse():
            raise errors.AccessDenied('no such token')
        client.version = refuse
        self.assertRaises(errors.Unavailable, list, versions.kubernetes(
            fakes.reading(client)))

    def kubevirt(self, kubernetes='v1.34.4', **status):
        client = fakes.Client(kubernetes).put(
            fakes.KUBEVIRT, fakes.kubevirt(**status))
        return fakes.brief(versions.kubevirt(fakes.reading(client)))

    def test_kubevirt(self):
        ready = ('ok', 'VersionSupported'), ('ok', 'Deployed')
        self.assertEqual([*ready, *GATES_ON], self.kubevirt())
        self.assertEqual(('warning', 'VersionTooOld'),
                         self.kubevirt(version='v1.4.1')[0])
        self.assertEqual(('warning', 'VersionNotTested'),
                         self.kubevirt(version='v1.10.0')[0])
        self.assertEqual(('warning', 'VersionUnknown'),
                         self.kubevirt(version='v0.0.0')[0])

    def test_kubevirt_and_kubernetes_of_different_times(self):
        for kubernetes, version, fits in (
                ('v1.32.1', 'v1.5.3', True), ('v1.33.0', 'v1.5.3', False),
                ('v1.34.0', 'v1.9.0', True), ('v1.33.9', 'v1.9.0', False),
                ('v1.37.2', 'v1.9.0', True), ('v1.38.0', 'v1.9.0', False),
                # Not in KubeVirt's table.
                ('v1.33.0', 'v1.4.0', True)):
            self.assertIs(fits, (
                'warning', 'KubernetesNotSupported') not in self.kubevirt(
                    kubernetes, version=version))

    def test_kubevirt_is_missing_or_not_available(self):
        missing = [('problem', 'KubeVirtMissing')]
        for client in fakes.Client(groups=()), fakes.Client():
            self.assertEqual(missing, fakes.brief(versions.kubevirt(
                fakes.reading(client))))
        self.assertIn(('warning', 'NotDeployed'),
                      self.kubevirt(phase='Deploying'))
        for type_, status in (('Available', 'False'), ('Degraded', 'True')):
            self.assertIn(
                ('problem', 'NotAvailable'), self.kubevirt(
                    conditions=[{'type': type_, 'status': status,
                                 'message': 'virt-api is down'}]))

    def test_kubevirt_and_cdi_that_are_being_deployed(self):
        """The version is known, and what KubeVirt says is no problem.

        While it deploys, Available is False; while it updates, Degraded True.
        """
        for available, degraded in (('False', 'False'), ('True', 'True')):
            status = {
                'targetKubeVirtVersion': 'v1.9.0', 'targetVersion': 'v1.65.0',
                'phase': 'Deploying', 'conditions': [
                    {'type': 'Available', 'status': available},
                    {'type': 'Degraded', 'status': degraded},
                    {'type': 'Progressing', 'status': 'True',
                     'message': 'Deploying version v1.9.0'}]}
            expected = [('ok', 'VersionSupported'),
                        ('warning', 'NotDeployed')]
            client = fakes.Client().put(fakes.KUBEVIRT, {
                **fakes.kubevirt(), 'status': status})
            self.assertEqual([*expected, *GATES_ON], fakes.brief(
                versions.kubevirt(fakes.reading(client))))
            client.put(kinds.CDI, fakes.named('cdi', status=status))
            self.assertEqual(expected, fakes.brief(
                versions.cdi(fakes.reading(client))))

    def test_gates(self):
        self.assertEqual(
            [('warning', 'FeatureGateOff'), ('ok', 'FeatureGateOn')],
            self.kubevirt(off=['RebootPolicy'])[-2:])
        # Alpha in 1.8 and off by default; not there yet in 1.7.
        self.assertEqual([('warning', 'FeatureGateOff')] * 2,
                         self.kubevirt(version='v1.8.0')[-2:])
        self.assertEqual(
            [('ok', 'FeatureGateUnknown'), ('ok', 'FeatureGateOn')],
            self.kubevirt(version='v1.7.0',
                          on=['DeclarativeHotplugVolumes'])[-2:])
        self.assertEqual(('warning', 'FeatureGateConflict'),
                         self.kubevirt(on=['HotplugVolumes'])[-1])

    def test_cdi(self):
        client = fakes.Client(groups=('kubevirt.io',))
        [found] = versions.cdi(fakes.reading(client))
        self.assertEqual(('warning', 'CDIMissing'),
                         fakes.brief([found])[0])
        # The words with which an insert is refused.
        self.assertIn('Virtual media need CDI', found.message)
        client = fakes.Client()
        self.assertEqual([('warning', 'CDIMissing')], fakes.brief(
            versions.cdi(fakes.reading(client))))
        client.put(kinds.CDI, fakes.named('cdi', status={
            'observedVersion': 'v1.65.0', 'phase': 'Deployed'}))
        self.assertEqual(
            [('ok', 'VersionSupported'), ('ok', 'Deployed')],
            fakes.brief(versions.cdi(fakes.reading(client))))

    def test_old_version_has_a_remedy(self):
        for one in versions.kubernetes(
                fakes.reading(fakes.Client('v1.29.0'))):
            self.assertIs(findings.Status.PROBLEM, one.status)
            self.assertEqual('Upgrade Kubernetes.', one.remedy)


class TableTestCase(base.BaseTestCase):
    """The table of the page is that of the program."""

    def test_table_of_kubevirt(self):
        rows = re.findall(r'(?m)^(1\.\d+) +(1\.\d+)–(1\.\d+) ',
                          PAGE.read_text())
        self.assertEqual(
            {versions._text(version): tuple(map(
                versions._text, supported))
             for version, supported in versions.KUBEVIRT_VERSIONS.items()},
            {version: (first, last) for version, first, last in rows})

    def test_ranges(self):
        text = ' '.join(PAGE.read_text().split())
        for name, known in (('Kubernetes', versions.KUBERNETES_VERSIONS),
                            ('CDI', versions.CDI_VERSIONS)):
            self.assertIn(f'{name} {versions._span(known)}', text)
