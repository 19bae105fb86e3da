# SPDX-License-Identifier: Apache-2.0
"""What ``kubectl bmc media`` shows while a medium is not complete."""

import argparse

import fixtures
from oslotest import base

from sushy_kubevirt.kubectl.commands import media


def device(state='Updating', health='OK', inserted=True, **conditions):
    return {'Id': 'Cd', 'Image': 'http://x/y.iso', 'Inserted': inserted,
            'Status': {'State': state, 'Health': health, 'Conditions': [
                {'MessageId': 'X.1.0.' + name, 'MessageArgs': ['id', args],
                 'Message': text} for name, (args, text)
                in conditions.items()]}}


def progress(percent, text=''):
    return {'TaskProgressChanged': (
        str(percent), f"The task with Id 'id' has changed to progress "
        f'{percent} percent complete.{text}')}


class Bmc:
    """A BMC whose device is read several times."""

    def __init__(self, *devices):
        self.devices = list(devices)

    def redfish(self, _name):
        return self

    def request(self, *_arguments, **_options):
        pass

    def get(self, _path):
        return self.devices.pop(0)


class WaitTestCase(base.BaseTestCase):

    def insert(self, *devices):
        """Return exit status and output of an insert."""
        self.useFixture(fixtures.MonkeyPatch(
            'sushy_kubevirt.kubectl.commands.media._POLL_SECONDS', 0))
        stream = self.useFixture(fixtures.StringStream('stderr')).stream
        with fixtures.MonkeyPatch('sys.stderr', stream):
            status = media.run(Bmc(*devices), argparse.Namespace(
                name='box', action='insert', image='http://x/y.iso',
                device='cd', user=None, password_stdin=False,
                insecure=False))
        stream.seek(0)
        return status, stream.read().splitlines()

    def test_progress_and_reason(self):
        self.assertEqual((0, [
            'Import 0 %', 'No volume yet', 'Import 10 %',
            'The guest sees it later']), self.insert(
            device(**progress(0, ' No volume yet')),
            device(**progress(3, ' No volume yet')),
            device(**progress(12)), device(**progress(19)),
            device('Enabled', ResetRequired=('x', 'The guest sees it later'))))

    def test_failure(self):
        self.assertEqual((1, ['It failed']), self.insert(
            device('Enabled', 'Critical', MediaFailed=('x', 'It failed'))))

    def test_ejected_meanwhile(self):
        self.assertEqual(
            (1, ['Import 0 %', 'The medium was ejected meanwhile']),
            self.insert(device(**progress(0)),
                        device('Enabled', inserted=False)))
