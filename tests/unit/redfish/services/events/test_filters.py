# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import filters
from sushy_kubevirt.redfish.services.events import messages

SYSTEM = '/redfish/v1/Systems/1'


def record(
    message=messages.POWERED_ON,
    type_=event_record.STATUS,
    origin=SYSTEM,
    resource_type='ComputerSystem',
    args=('vm',),
):
    return event_record.make(message, type_, args, origin, resource_type)


POWER = record()
MEDIA = record(messages.MEDIA_FAILED, event_record.ALERT,
               SYSTEM + '/VirtualMedia/Cd', 'VirtualMedia', tuple('abcde'))


class TestFilter(base.BaseTestCase):

    def wanted(self, **fields):
        one = filters.Filter(**fields)
        return [name for name, what in (('power', POWER), ('media', MEDIA))
                if one.matches(what)]

    def test_all(self):
        self.assertEqual(['power', 'media'], self.wanted())

    def test_registries_and_messages(self):
        self.assertEqual(['power'], self.wanted(registries=('ResourceEvent',)))
        for id_ in ('ResourceEvent.ResourcePoweredOn',
                    'ResourceEvent.1.0.ResourcePoweredOn'):
            self.assertEqual(['power'], self.wanted(messages=(id_,)))
        # One or the other will do.
        self.assertEqual(['power', 'media'], self.wanted(
            registries=('SushyKubeVirt',),
            messages=('ResourceEvent.ResourcePoweredOn',)))
        self.assertEqual([], self.wanted(
            messages=('SushyKubeVirt.ResourcePoweredOn',)))
        self.assertEqual(['media'], self.wanted(
            no_registries=('ResourceEvent',)))
        self.assertEqual(['power'], self.wanted(
            no_messages=('SushyKubeVirt.1.0.MediaImportFailed',)))

    def test_resources(self):
        self.assertEqual(['media'], self.wanted(
            resource_types=('VirtualMedia',)))
        self.assertEqual(['power'], self.wanted(origins=(SYSTEM,)))
        self.assertEqual(['power', 'media'], self.wanted(
            origins=(SYSTEM + '/',), subordinate=True))
        self.assertEqual([], self.wanted(
            origins=('/redfish/v1/Systems/11',), subordinate=True))

    def test_types(self):
        self.assertEqual(['power'], self.wanted(types=('StatusChange',)))
        for types in (('Alert',), ('Other',), ('Alert', 'StatusChange')):
            self.assertEqual(['power', 'media'], self.wanted(types=types))
        self.assertEqual([], self.wanted(types=('ResourceAdded',)))

    def test_severities(self):
        self.assertEqual(['media'], self.wanted(
            severities=('Warning', 'Critical')))


class TestExpression(base.BaseTestCase):

    def wanted(self, text):
        one = filters.Expression(text)
        return [name for name, what in (('power', POWER), ('media', MEDIA))
                if one.matches(what)]

    def test_read(self):
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
                ('(OriginResource eq %s) and (SubordinateResources eq true)'
                 % SYSTEM, 'power media'),
                ('RegistryPrefix eq TaskEvent or ResourceType eq '
                 'ComputerSystem', 'power'),
                # and before or
                ('ResourceType eq ComputerSystem or ResourceType eq '
                 'VirtualMedia and RegistryPrefix eq TaskEvent', 'power'),
                ('(ResourceType eq ComputerSystem or ResourceType eq '
                 'VirtualMedia) and RegistryPrefix eq TaskEvent', '')):
            self.assertEqual(wanted.split(), self.wanted(text), text)

    def test_refused(self):
        for text in ('x', 'RegistryPrefix', 'RegistryPrefix eq',
                     'RegistryPrefix like x', 'Nonsense eq x', '()', '(',
                     'RegistryPrefix eq a b', "RegistryPrefix eq 'a",
                     'RegistryPrefix eq a)', 'and', 'EventFormatType eq x',
                     'SubordinateResources eq x', '(' * 50,
                     ' or '.join(['RegistryPrefix eq a'] * 100),
                     'not ' * 1000, 'x' * 5000):
            self.assertRaises(filters.BadFilter, filters.Expression, text)
