# SPDX-License-Identifier: Apache-2.0
import asyncio
import dataclasses
import unittest
from unittest import mock

from kubevirt_sandbox.qemu import drives
from kubevirt_sandbox.qemu import media
from kubevirt_sandbox.qemu import qmp

EMPTY = drives.Drive('cd', 'sata', True, None, None, False)
FULL = dataclasses.replace(EMPTY, medium=drives.Medium('cd', '/iso'))
OTHER = dataclasses.replace(EMPTY, medium=drives.Medium('cd', '/other'))


class Machine:
    """Fake machine that records commands.

    :param locked: how often its tray cannot be opened.
    :param busy: how often a block device cannot be deleted.
    """

    name = 'default/one'

    def __init__(self, locked=0, busy=0):
        self.gone = asyncio.Event()
        self.commands = []
        self.locked = locked
        self.busy = busy
        self.open = False

    async def execute(self, command, /, **arguments):
        self.commands.append(command)
        if command == 'query-block':
            return [{'qdev': 'ua-cd', 'tray_open': self.open}]
        if command == 'blockdev-open-tray':
            if self.locked:
                self.locked -= 1
                raise qmp.QmpError('the tray is locked')
            self.open = True
        if command == 'blockdev-close-tray':
            self.open = False
        if command == 'blockdev-del' and self.busy:
            self.busy -= 1
            raise qmp.QmpError('the node is in use')


@mock.patch.object(media, '_ASK_AGAIN', 0.001)
class MediaTestCase(unittest.IsolatedAsyncioTestCase):

    async def become(self, have, want, machine=None):
        machine = machine or Machine()
        changed = mock.Mock()
        found = media.Media(machine, [have] if have else [], changed)
        found.want([want] if want else [])
        if found._task is not None:
            await asyncio.wait_for(found._task, 30)
            changed.assert_called_once_with()
        self.assertEqual(want is not None and want.medium is not None,
                         found.has('cd'))
        return [word for word in machine.commands if word != 'query-block']

    async def test_inserts_medium(self):
        self.assertEqual([
            'blockdev-open-tray', 'blockdev-add', 'blockdev-insert-medium',
            'blockdev-close-tray'], await self.become(EMPTY, FULL))

    async def test_removes_medium(self):
        self.assertEqual([
            'blockdev-open-tray', 'blockdev-remove-medium', 'blockdev-del',
            'blockdev-close-tray'], await self.become(FULL, EMPTY))

    async def test_replaces_medium(self):
        self.assertEqual([
            'blockdev-open-tray', 'blockdev-remove-medium', 'blockdev-del',
            'blockdev-add', 'blockdev-insert-medium',
            'blockdev-close-tray'], await self.become(FULL, OTHER))

    async def test_unchanged_medium_needs_no_command(self):
        self.assertEqual([], await self.become(FULL, FULL))

    async def test_retries_while_guest_locks_the_tray(self):
        """Open the tray until the guest unlocks it."""
        commands = await self.become(FULL, EMPTY, Machine(locked=2))
        self.assertEqual(3, commands.count('blockdev-open-tray'))
        self.assertEqual('blockdev-close-tray', commands[-1])

    async def test_plugs_and_unplugs_disk(self):
        disk = drives.Drive('cd', 'scsi', False, drives.Medium('cd', '/d'),
                            None, True, plugged=True)
        self.assertEqual(['blockdev-add', 'device_add'],
                         await self.become(None, disk))
        self.assertEqual(['device_del', 'blockdev-del'],
                         await self.become(disk, None))

    async def test_unplugs_disk_that_the_guest_reads(self):
        disk = drives.Drive('cd', 'scsi', False, drives.Medium('cd', '/d'),
                            None, True, plugged=True)
        self.assertEqual(
            ['device_del', 'blockdev-del', 'blockdev-del', 'blockdev-del'],
            await self.become(disk, None, Machine(busy=2)))
