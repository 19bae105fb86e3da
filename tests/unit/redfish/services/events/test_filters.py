# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from sushy_kubevirt.bmc import event_registry
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import filters

SYSTEM = '/redfish/v1/Systems/1'


def record(
    message=event_registry.POWERED_ON,
    type_=event_record.STATUS,
    origin=SYSTEM,
    resource_type='ComputerSystem',
    args=('vm',),
):
    return event_record.make(message, type_, args, origin, resource_type)


POWER = record()
MEDIA = record(event_registry.MEDIA_FAILED, event_record.ALERT,
               SYSTEM + '/VirtualMedia/Cd', 'VirtualMedia', tuple('abcde'))


class FilterTestCase(base.BaseTestCase):

    def matching(self, **fields):
        one = filters.Filter(**fields)
        return [name for name, what in (('power', POWER), ('media', MEDIA))
                if one.matches(what)]

    def test_empty_filter_matches_all(self):
        self.assertEqual(['power', 'media'], self.matching())

    def test_filters_by_registry_and_message(self):
        self.assertEqual(
            ['power'], self.matching(registries=('ResourceEvent',)))
        for id_ in ('ResourceEvent.ResourcePoweredOn',
                    'ResourceEvent.1.0.ResourcePoweredOn'):
            self.assertEqual(['power'], self.matching(messages=(id_,)))
        # A match of either is sufficient.
        self.assertEqual(['power', 'media'], self.matching(
            registries=('SushyKubeVirt',),
            messages=('ResourceEvent.ResourcePoweredOn',)))
        self.assertEqual([], self.matching(
            messages=('SushyKubeVirt.ResourcePoweredOn',)))
        self.assertEqual(['media'], self.matching(
            no_registries=('ResourceEvent',)))
        self.assertEqual(['power'], self.matching(
            no_messages=('SushyKubeVirt.1.0.MediaImportFailed',)))

    def test_filters_by_resource_type_and_origin(self):
        self.assertEqual(['media'], self.matching(
            resource_types=('VirtualMedia',)))
        self.assertEqual(['power'], self.matching(origins=(SYSTEM,)))
        self.assertEqual(['power', 'media'], self.matching(
            origins=(SYSTEM + '/',), subordinate=True))
        self.assertEqual([], self.matching(
            origins=('/redfish/v1/Systems/11',), subordinate=True))

    def test_filters_by_event_type(self):
        self.assertEqual(['power'], self.matching(types=('StatusChange',)))
        for types in (('Alert',), ('Other',), ('Alert', 'StatusChange')):
            self.assertEqual(['power', 'media'], self.matching(types=types))
        self.assertEqual([], self.matching(types=('ResourceAdded',)))

    def test_filters_by_severity(self):
        self.assertEqual(['media'], self.matching(
            severities=('Warning', 'Critical')))


class ExpressionTestCase(base.BaseTestCase):

    def matching(self, text):
        one = filters.Expression(text)
        return [name for name, what in (('power', POWER), ('media', MEDIA))
                if one.matches(what)]

    def test_evaluates_expressions(self):
        for text, wanted in (
                ('', 'power media'),
                ('RegistryPrefix eq ResourceEvent', 'power'),
                ("RegistryPrefix eq 'ResourceEvent'", 'power'),
                ('RegistryPrefix ne ResourceEvent', 'media'),
                ('not RegistryPrefix eq ResourceEvent', 'media'),
                ('MessageId eq ResourceEvent.ResourcePoweredOn', 'power'),
                ('ResourceType eq VirtualMedia', 'media'),
                ('EventFormatType eq Event', 'power media'),
                ('EventFormatType eq MetricReport', ''),
                ('EventType eq StatusChange', 'power'),
                ('EventType eq Other', 'power media'),
                (f'OriginResource eq {SYSTEM}', 'power'),
                (f'(OriginResource eq {SYSTEM}) and '
                 '(SubordinateResources eq true)', 'power media'),
                ('RegistryPrefix eq TaskEvent or ResourceType eq '
                 'ComputerSystem', 'power'),
                # and before or
                ('ResourceType eq ComputerSystem or ResourceType eq '
                 'VirtualMedia and RegistryPrefix eq TaskEvent', 'power'),
                ('(ResourceType eq ComputerSystem or ResourceType eq '
                 'VirtualMedia) and RegistryPrefix eq TaskEvent', '')):
            self.assertEqual(wanted.split(), self.matching(text), text)

    def test_rejects_invalid_expressions(self):
        for text in ('x', 'RegistryPrefix', 'RegistryPrefix eq',
                     'RegistryPrefix like x', 'Nonsense eq x', '()', '(',
                     'RegistryPrefix eq a b', "RegistryPrefix eq 'a",
                     'RegistryPrefix eq a)', 'and', 'EventFormatType eq x',
                     'SubordinateResources eq x', '(' * 50,
                     ' or '.join(['RegistryPrefix eq a'] * 100),
                     'not ' * 1000, 'x' * 5000):
            self.assertRaises(filters.BadFilter, filters.Expression, text)
