# SPDX-License-Identifier: Apache-2.0

import json

from oslotest import base

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.redfish.resources import registries
from sushy_kubevirt.redfish.services.events import event_record


def all_messages():
    return [found for found in vars(event_registry).values()
            if isinstance(found, event_registry.Message)]


class MessagesTestCase(base.BaseTestCase):

    def test_arguments_match_placeholders(self):
        for message in all_messages():
            args = [f'<{number}>' for number in range(
                1, message.text.count('%') + 1)]
            text = message.format(args)
            for arg in args:
                self.assertIn(arg, text)
            if message.registry.startswith(event_registry.PREFIX):
                self.assertEqual(len(args), len(message.arguments))
                self.assertTrue(message.about)

    def test_arguments_are_not_expanded_again(self):
        self.assertEqual('The resource `%2 %1` has powered on.',
                         event_registry.POWERED_ON.format(['%2 %1']))

    def test_registries_are_published(self):
        for message in all_messages():
            self.assertIn(message.registry.partition('.')[0],
                          event_registry.PREFIXES)
            if not message.registry.startswith(event_registry.PREFIX):
                self.assertIn(message.registry, registries.STANDARD)

    def test_own_registry(self):
        found = event_registry.registry()
        self.assertEqual('SushyKubeVirt.1.0.0', found['Id'])
        entry = found['Messages']['MediaImportFailed']
        self.assertEqual(5, entry['NumberOfArgs'])
        self.assertEqual(5, len(entry['ArgDescriptions']))
        self.assertEqual('Critical', entry['MessageSeverity'])
        self.assertNotIn('ResourcePoweredOn', found['Messages'])
        json.dumps(found)


class RecordsTestCase(base.BaseTestCase):

    class Machine:
        class cluster:
            vm = None
        uid = uuid = 'u-1'
        qualified_name = 'default/vm'

    def test_processes_make_equal_ids(self):
        one, two, other = (event_record.make(
            event_registry.POWERED_ON, event_record.STATUS, ('a',),
            machine=self.Machine, seed=(version, '9')).id
            for version in '778')
        self.assertEqual(one, two)
        self.assertNotEqual(one, other)

    def test_arguments_are_shortened_and_cleaned(self):
        record = event_record.make(
            event_registry.POWERED_ON, event_record.STATUS,
            ('x' * 5000 + '\r\n',))
        self.assertLess(len(record.text), 1100)
        record = event_record.make(
            event_registry.POWERED_ON, event_record.STATUS, ('a\r\nb',))
        self.assertEqual(('a  b',), record.args)

    def test_event_body(self):
        one = event_record.make(
            event_registry.POWERED_ON,
            event_record.STATUS,
            ('a',),
            '/redfish/v1/Systems/1',
        )
        two = event_record.make(event_registry.TEST, event_record.OTHER)
        body = event_record.event([one, two], 'mine', ('Alert',))
        self.assertEqual('mine', body['Context'])
        self.assertEqual(2, body['Events@odata.count'])
        first, second = body['Events']
        self.assertEqual(('0', '1'), (first['MemberId'], second['MemberId']))
        self.assertEqual('Alert', first['EventType'])
        self.assertEqual({'@odata.id': '/redfish/v1/Systems/1'},
                         first['OriginOfCondition'])
        self.assertNotIn('OriginOfCondition', second)
        body = event_record.event([one], '')
        self.assertNotIn('Context', body)
        self.assertEqual('StatusChange', body['Events'][0]['EventType'])
