# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from kubevirt_sandbox.kubevirt import gojson
from kubevirt_sandbox.kubevirt.schema import machine


def _rewrite(spec):
    return gojson.rewrite(machine.VMI_SPEC, spec, 'spec')


class GoJsonTest(base.BaseTestCase):

    def test_omits_empty_values(self):
        spec = _rewrite({
            'hostname': '', 'volumes': [], 'nodeSelector': {},
            'livenessProbe': None,
            'domain': {'devices': {'disks': [
                {'name': 'a', 'serial': '', 'disk': {'readonly': False}}],
                'interfaces': []}, 'cpu': {'cores': 0}}})
        self.assertEqual({'domain': {
            'devices': {'disks': [{'name': 'a', 'disk': {}}]}, 'cpu': {},
            'resources': {}}}, spec)

    def test_keeps_empty_values_of_pointers(self):
        given = {
            'terminationGracePeriodSeconds': 0,
            'networks': [{'name': 'a', 'pod': {}}],
            'domain': {
                'devices': {'autoattachSerialConsole': False,
                            'disks': [{'name': 'a', 'bootOrder': 0}]},
                'firmware': {'bootloader': {'efi': {'secureBoot': False}}},
                'resources': {}}}
        self.assertEqual(given, _rewrite(given))

    def test_normalizes_quantities(self):
        spec = _rewrite({'domain': {
            'devices': {}, 'memory': {'guest': '2048Mi'},
            'resources': {'requests': {'cpu': 0.5, 'memory': 1000}}}})
        self.assertEqual('2Gi', spec['domain']['memory']['guest'])
        self.assertEqual({'cpu': '500m', 'memory': '1k'},
                         spec['domain']['resources']['requests'])

    def test_rejects_values_that_go_cannot_decode(self):
        for domain in (
                {'devices': {'disks': [{'name': 'a', 'bootOrder': -1}]}},
                {'devices': {}, 'cpu': {'cores': -1}},
                {'devices': {}, 'cpu': {'sockets': 2 ** 32}},
                {'devices': {}, 'memory': {'guest': 'lots'}}):
            self.assertRaises(gojson.DecodeError, _rewrite,
                              {'domain': domain})

    def test_leaves_wrong_types_to_the_schema(self):
        given = {'domain': {'devices': {'disks': 'none'}, 'cpu': 4,
                            'resources': {}}, 'volumes': {'a': 1}}
        self.assertEqual(given, _rewrite(given))

    def test_does_not_change_its_argument(self):
        given = {'domain': {'devices': {'disks': []},
                            'memory': {'guest': '1024Mi'}}}
        _rewrite(given)
        self.assertEqual({'domain': {'devices': {'disks': []},
                                     'memory': {'guest': '1024Mi'}}}, given)
