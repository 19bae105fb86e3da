# SPDX-License-Identifier: Apache-2.0
"""What is wrong in a cluster file is said at once, and where it is."""

import copy
import dataclasses
import pathlib
import textwrap

from oslotest import base

from sushy_kubevirt.cluster import checks
from sushy_kubevirt.cluster import config
from sushy_kubevirt.cluster import document
from sushy_kubevirt.cluster import problems

SAMPLE = pathlib.Path(__file__).parent / 'samples/every-key.yaml'

A = '''\
node_types: {a: {vcpus: 1, memory_mb: 1}}
specs:
'''


def refused(text):
    """Return the lines of the message."""
    read = document.parse(textwrap.dedent(text), 'c.yaml')
    try:
        config.of_document(read)
    except problems.InvalidFile as error:
        return str(error).split('\n')
    return []


class ProblemsTestCase(base.BaseTestCase):

    def test_all_problems_in_the_order_of_the_file(self):
        self.assertEqual([
            'c.yaml:2:3: "memory_mb" is missing in node type "small"',
            'c.yaml:3:5: unknown key "memory"; did you mean "memory_mb"?',
            'c.yaml:4:5: "vcpus" has to be a whole number, not "two"',
            'c.yaml:5:25: there is no physical network "physnet1" in '
            '"physnet_mappings" or "networks"; did you mean "physnet0"?',
            'c.yaml:6:15: "capacity" is missing in a volume',
            'c.yaml:6:16: unknown key "capcity"; did you mean "capacity"?',
            'c.yaml:7:1: unknown key "spec"; did you mean "specs"?',
            'c.yaml:9:3: "type" is missing in specs[0]',
            'c.yaml:9:3: "count" has to be from 0 to 10000, not -1',
            'c.yaml:10:3: "ironic_config" has to be a mapping',
            'c.yaml:12:23: there is no node type "smal" in "node_types"; did '
            'you mean "small"?',
        ], refused('''\
            node_types:
              small:
                memory: 1
                vcpus: two
                physical_networks: [physnet1]
                volumes: [{capcity: 1G}]
            spec: []
            specs:
            - count: -1
              ironic_config: [x]
            nova_flavors:
            - {resource_class: x, node_type: smal}
            physnet_mappings: {physnet0: pod}
            '''))

    def check(self, *cases):
        for text, expected in cases:
            lines = refused(text)
            self.assertEqual(1, len(lines), (text, lines))
            self.assertIn(expected, lines[0])

    def test_files_that_are_no_mapping(self):
        for text in '', '[]\n', 'text\n', '3\n':
            self.check((text, 'the file has to be a mapping'))
        self.assertEqual([], refused('{}'))

    def test_unknown_keys(self):
        self.check(
            ('node_typos: {}', 'c.yaml:1:1: unknown key "node_typos"; did you '
             'mean "node_types"?'),
            ('traits: []', 'unknown key "traits"; there is '
             'specs[].ironic_config.traits'),
            ('cluster: {colour: red}', 'unknown key "colour"; known here: '
             'credentials_generation, name, namespace'),
            ('cluster: {' + 'x' * 999 + ': 1}', 'x' * 59 + '…"'))

    def test_kinds(self):
        self.check(
            ('node_types: []', '"node_types" has to be a mapping of names to '
             'mappings'),
            ('node_types: {a: 3}', '"a" has to be a mapping'),
            ('specs: {a: 3}', '"specs" has to be a list of mappings'),
            ('specs: [3]', 'c.yaml:1:9: each of "specs" has to be a mapping'),
            ('deploy_kernel: 7', '"deploy_kernel" has to be text, not 7; put '
             'it in quotes'),
            ('deploy_kernel: ""', '"deploy_kernel" must not be empty'),
            ('node_name_prefix: ' + 'x' * 61, 'has 61 characters; at most 60'),
            ('wait_for_placement: 1', 'has to be true or false, not 1'),
            ('wait_for_placement: "true"', 'true or false, not "true"'),
            ('cluster: {credentials_generation: true}',
             'has to be a whole number, not true'),
            ('physnet_mappings: {a: }', '"a" has to be text, not null'),
            ('networks: {a: {switch_id: x}}', 'has to be a MAC address'),
            ('networks: {a: {switch_options: {password: x}}}',
             'cluster files have no secrets; let the switch accept a key'),
            ('networks: {a: {switch_options: {ngs_mac_address: x}}}',
             '"ngs_mac_address" follows from the networks'),
            ('networks: {a: {switch_options: {"x]": y}}}', '"x]" is not '
             'an option of one line'),
            ('networks: {a: {switch_options: {x: "a\\nb"}}}', 'of one line'),
            ('default_boot_mode: efi', '"default_boot_mode" cannot be "efi"; '
             'did you mean "uefi"?'),
            ('default_ironic_driver: agent', 'has to be one of "ipmi", '
             '"redfish", "snmp", not "agent"'))

    def test_lists(self):
        flavor = ('node_types: {a: {vcpus: 1, memory_mb: 1}}\n'
                  'nova_flavors: [{resource_class: x, node_type: a, %s}]')
        self.check(
            (flavor % 'required_traits: [A, 1]',
             'each of "required_traits" has to be text, not 1'),
            (flavor % 'required_traits: [CUSTOM_A, CUSTOM_A]',
             '"CUSTOM_A" is in "required_traits" twice'),
            (flavor % 'required_traits: [custom-a]',
             '"custom-a" is no trait; those of your own are CUSTOM_'),
            (flavor % 'required_traits: [A], forbidden_traits: [A]',
             'the trait A is both required and forbidden'),
            (flavor % 'custom_specs: {a: [1]}',
             '"a" has to be text, not a list'),
            (flavor % 'name: x}, {resource_class: x, node_type: a',
             'there is a flavor "x" already'))

    def test_expressions_of_ansible(self):
        for text in ('deploy_kernel: "{{ kernel }}"',
                     'physnet_mappings: {a: "{{ bridge }}"}',
                     'networks: {a: {config: {type: "{% if x %}"}}}',
                     'node_types: {a: {vcpus: "{{ n }}", memory_mb: 1}}',
                     'specs: "{{ specs }}"',
                     'node_types: {a: {vcpus: 1, memory_mb: 1, bmc: {x: '
                     '[{y: "{{ z }}"}]}}}'):
            self.check((text, 'expressions of Ansible are not evaluated'))

    def test_names(self):
        count = '- {type: a, count: 1, %s}'
        self.check(
            ('cluster: {name: A_b}', '"A_b" cannot name a cluster'),
            ('cluster: {namespace: a.b}', '"a.b" cannot name a namespace'),
            (A + count % 'node_name_prefix: a_', '"a_" cannot begin a name'),
            (A + count % 'vol_name_prefix: V', 'c.yaml:3:23: "V" cannot'),
            ('node_name_prefix: B\n' + A + 2 * (count % '' + '\n'),
             'c.yaml:1:1: "B" cannot begin a name'),
            (A + '- {type: a, count: 11, node_name_prefix: n}\n'
             + count % 'node_name_prefix: n1',
             'c.yaml:4:3: a second one gets the name "n10"'),
            (A + count % 'node_names: [b, c]',
             'c.yaml:3:23: "node_names" has 2 names, and "count" is 1'),
            (A + count % 'node_names: [b.c]',
             'c.yaml:3:36: "b.c" cannot name a node'),
            (A + count % 'node_names: [b], node_name_prefix: c',
             '"node_name_prefix" has no effect with "node_names"'),
            (A + count % 'node_names: [n0]' + '\n'
             + count % 'node_name_prefix: n',
             'c.yaml:4:3: a second one gets the name "n0"'),
            (A + '- {type: a, count: 6000}\n' * 2, 'more than 10000 nodes'),
            ('networks: {%s: {}}' % ('n' * 65), '1 to 64 characters'))

    def test_networks(self):
        self.check(
            ('physnet_mappings: {a: b/c/d}', '"b/c/d" does not name a Network'
             'AttachmentDefinition; write name or namespace/name'),
            ('networks: {a: {attachment: b_c}}', 'c.yaml:1:16: "b_c" does'),
            ('physnet_mappings: {a: x}\nnetworks: {a: {attachment: y}}',
             'c.yaml:2:16: "a" is in "physnet_mappings" already'),
            ('networks: {a: {attachment: x, shared: true}}',
             '"shared" is for networks that are created'),
            ('networks: {a: {config: {bridge: x}}}',
             'a CNI configuration has "type", or "plugins"'),
            ('physnet_mappings: {a: pod, b: pod}\nnode_types: {t: {vcpus: 1, '
             'memory_mb: 1, physical_networks: [a, b]}}',
             'c.yaml:2:65: "a" and "b" are both the pod network'),
            ('cluster: {name: x}\nnetworks: {a: , x-a: {shared: true}}',
             'c.yaml:2:17: "x-a" and "a" would both create the definition '
             '"x-a"'),
            ('networks: {a: {node_selector: {a b: x}}}',
             'c.yaml:1:32: "a b" is not the name of a label'),
            ('networks: {a: {node_selector: {a: x y}}}',
             '"x y" cannot be the value of a label'),
            ('networks: {n: {node_selector: {l: x}}}\nnode_types: {t: {vcpus: '
             '1, memory_mb: 1, physical_networks: [n], placement: '
             '{node_selector: {l: y}}}}', 'the network "n" needs nodes with '
             'the label l=x, others l=y'))

    def test_volumes(self):
        text = 'node_types: {a: {vcpus: 1, memory_mb: 1, volumes: [{%s}]}}'
        self.check(
            (text % 'bus: sata', '"capacity" is missing in a volume'),
            (text % 'capacity: big', '"capacity" has to be a size, such as '
             '2GiB, not "big"'),
            (text % 'capacity: 0', 'a size, such as 2GiB, not 0'),
            (text % 'capacity: 1G, image: /tmp/x', 'begins with http://'),
            (text % 'image: "http://x/y"', '"capacity" is missing'),
            (text % 'claim: x, clone: y', 'a volume has one source, not '
             '"claim" and "clone"'),
            (text % 'claim: "{nod}"', '"{nod}" does not name a Persistent'),
            (text % 'clone: a/b/c', '"a/b/c" does not name a Persistent'),
            (text % 'claim: x, capacity: 1G', 'an existing claim has its own '
             '"capacity"'),
            (text % 'capacity: 1G, ephemeral: true, storage_class: x',
             'an ephemeral volume has no "storage_class"'),
            ('node_types: {a: {vcpus: 1, memory_mb: 1, volumes: [{claim: x}]}}'
             '\nspecs: [{type: a, count: 2}]', 'cannot share one claim; put '
             '{node} or {index} into its name'))

    def test_types(self):
        text = 'node_types: {a: {vcpus: 1, memory_mb: 1, %s}}'
        spec = '\nspecs: [{type: a, count: 1}]'
        self.check(
            (text % 'boot_mode: bios, secure_boot: true' + spec,
             '"secure_boot", which needs the boot mode uefi, not bios'),
            *((text % ('vm: {spec: {template: {spec: {architecture: %s}}}}, '
                       % name + more) + spec,
               f'has "{wrong}, which KubeVirt does not have for the '
               f'architecture {name}')
              for name, more, wrong in (
                  ('arm64', 'boot_mode: bios', 'boot_mode" bios'),
                  ('arm64', 'secure_boot: true', 'secure_boot" true'),
                  ('arm64', 'volumes: [{capacity: 1G, bus: sata}]',
                   'bus" sata'),
                  ('s390x', 'tpm: persistent', 'boot_mode" uefi'),
                  ('s390x', 'boot_mode: bios, volumes: [{capacity: 1G, '
                   'bus: usb}]', 'bus" usb'))),
            (text % 'placement: {numa: true, dedicated_cpus: true}',
             '"numa" needs "huge_pages"'),
            ('node_types: {a: {instancetype: {name: x}, vcpus: 1}}',
             '"vcpus" follows from "instancetype"'),
            ('node_types: {a: {instancetype: {}}}',
             '"name" is missing in node_types.a.instancetype'),
            (text % 'placement: {spread: "a b"}', '"spread" has to be the '
             'name of a label, such as kubernetes.io/hostname, not "a b"'),
            ('node_types: {a: {instancetype: {name: A_b}}}', '"name" has to '
             'be the name of an object'),
            (text % 'placement: 3', '"placement" has to be a mapping, not 3'))

    def test_ironic(self):
        text = A + ('- {type: a, count: 1, ironic_config: {resource_class: x, '
                    '%s}}')
        self.check(
            (A + '- {type: a, count: 1, ironic_config: {}}',
             '"resource_class" is missing in specs[0].ironic_config'),
            (text % 'properties: {capabilities: boot_mode}',
             '"capabilities" is text such as'),
            (text % 'properties: {capabilities: [a]}', 'is text such as'),
            (text % 'properties: {capabilities: "boot_mode:efi"}',
             'has to be one of uefi, bios, not "efi"'),
            *((text % f'capabilities: {{{one}}}', 'cannot be a capability')
              for one in ('"": x', '"a:b": x', '"a,b": x', 'a: "b,c:d"',
                          '" a": x', 'a: "x "')),
            (text % 'extra: {sushy_kubevirt: {cluster: x}}',
             'c.yaml:3:66: "sushy_kubevirt" is kept for this command'),
            (text % 'pxe_networks: [x]', 'there is no physical network "x"'),
            (text % 'verify_ca: false, ca_file: /x', '"ca_file" has no effect')
        )


class WrongValuesTestCase(base.BaseTestCase):

    def test_any_value_anywhere_is_accepted_or_refused(self):
        """And never an error of another kind."""
        read = document.read(SAMPLE)
        refusals = 0
        for path in read.marks:
            for wrong in (None, 3, -1.5, True, '', 'x', 'a b/{c}', [], {},
                          [3, None], {'x': 3}, [{'x': {}}], '{{ x }}'):
                try:
                    config.of_document(dataclasses.replace(
                        read, value=_changed(read.value, path, wrong)))
                except problems.InvalidFile as error:
                    refusals += 1
                    self.assertIn('every-key.yaml', str(error))
        self.assertGreater(refusals, 1000)
        self.assertEqual(document.read(SAMPLE).value, read.value)


def _changed(value, path, wrong):
    """Return a value that is wrong at a path; the rest is not copied."""
    if not path:
        return wrong
    changed = copy.copy(value)
    changed[path[0]] = _changed(value[path[0]], path[1:], wrong)
    return changed


class SizeTestCase(base.BaseTestCase):

    def test_units_are_those_of_tenks(self):
        """As its _parse_size_string: GB is decimal, G and GiB are binary."""
        for text, expected in (
                (2000, '2000'), ('5', '5'), ('5B', '5'), ('2GB', '2G'),
                ('2gb', '2G'), ('2G', '2Gi'), ('2g', '2Gi'), ('2GiB', '2Gi'),
                (' 2  GiB ', '2Gi'), ('2Gi', '2Gi'), ('3kb', '3k'),
                ('3K', '3Ki'), ('4M', '4Mi'), ('4MB', '4M'), ('1TB', '1T'),
                ('1.5Gi', '1.5Gi')):
            self.assertEqual(expected, checks.size(text), text)
        for text in '', 'G', '-1G', '0', '0GB', '1e3', '1 X', '1GGB', '2٣':
            self.assertIsNone(checks.size(text), text)
