# SPDX-License-Identifier: Apache-2.0
"""Raw fields of VMs: whatever is given, no object is made or it is usable."""

import itertools
import json

from oslotest import base

from sushy_kubevirt.cluster import config
from sushy_kubevirt.cluster import document
from sushy_kubevirt.cluster.objects import catalog
from sushy_kubevirt.cluster.objects import vm
from sushy_kubevirt.cluster.objects import volumes
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.kube import api_resources

PATHS = (
    'metadata', 'metadata.labels', 'metadata.annotations',
    'metadata.namespace', 'metadata.finalizers', 'status', 'kind', 'spec',
    'spec.runStrategy', 'spec.template', 'spec.template.metadata',
    'spec.template.metadata.labels', 'spec.template.spec',
    'spec.template.spec.architecture',
    'spec.template.spec.domain', 'spec.template.spec.domain.devices',
    'spec.template.spec.domain.devices.disks', 'spec.template.spec.volumes',
    'spec.dataVolumeTemplates')
VALUES = (None, 5, 'text', [], [1], [{}], [{'name': 1}], [{'name': 'a'}], {},
          {'a': 'b'}, {'a': None}, [{'metadata': {'name': 'a'}}])


def read(raw):
    return config.of_document(document.parse(json.dumps({
        'node_types': {'a': {'vcpus': 1, 'memory_mb': 1, 'vm': raw,
                             'volumes': [{'capacity': '1G'}]}},
        'specs': [{'type': 'a', 'count': 1}]}), 'c.yaml'))


class RawTestCase(base.BaseTestCase):

    def test_any_value(self):
        accepted = 0
        for path, value in itertools.product(PATHS, VALUES):
            raw = value
            for key in reversed(path.split('.')):
                raw = {key: raw}
            try:
                made = catalog.wanted(read(raw), 'space')
            except problems.InvalidFile:
                continue
            accepted += 1
            [body] = [one.body for one in made
                      if one.resource == api_resources.VM]
            volumes.template_names(body)
            vm.without_drive(body)
            self.assertEqual(('VirtualMachine', 'tk0', 'space'), (
                body['kind'], body['metadata']['name'],
                body['metadata']['namespace']))
        self.assertGreater(accepted, 40)

    def test_messages(self):
        for raw, expected in (
                ({'metadata': {'name': 'x'}}, '"name" cannot be set here; '
                 'only annotations and labels can'),
                ({'spec': {'template': None}}, '"template" has to be a '
                 'mapping'),
                ({'spec': {'dataVolumeTemplates': [{}]}},
                 '"dataVolumeTemplates" has to be a list of mappings with '
                 '"metadata.name"')):
            error = self.assertRaises(problems.InvalidFile, read, raw)
            self.assertIn(expected, str(error))

    def test_bmc_is_that_of_its_node(self):
        error = self.assertRaises(
            problems.InvalidFile, config.of_document, document.parse(
                'node_types:\n  a: {vcpus: 1, memory_mb: 1, bmc: '
                '{virtualMachine: {name: b}}}\n', 'c.yaml'))
        self.assertEqual('c.yaml:2:37: "virtualMachine" cannot be set here: '
                         'a BMC is that of the VM of its node', str(error))

    def test_messages_do_not_control_the_terminal(self):
        error = self.assertRaises(
            problems.InvalidFile, config.of_document, document.parse(
                '"\\e[2J\\u202e": 1\n', 'c.yaml'))
        self.assertIn(r'unknown key "\x1b[2J\u202e"', str(error))
