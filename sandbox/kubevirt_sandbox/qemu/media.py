# SPDX-License-Identifier: Apache-2.0
"""Changes the media in the drives of a running machine.

The medium of a CD-ROM drive is exchanged as libvirt does it: open the tray (a
guest that has locked it is asked to release it), remove the medium, insert the
next one, close the tray. Disks added to the running machine are plugged into
its SCSI controller. One task makes these changes step by step until the
machine's drives match the VMI.
"""

import asyncio
import dataclasses
import itertools
import logging

from kubevirt_sandbox.qemu import command
from kubevirt_sandbox.qemu import qmp

LOG = logging.getLogger(__name__)

_ASK_AGAIN = 1.0


class Media:
    """The drives of one machine.

    :param machine: the :class:`machine.Machine`.
    :param found: list of its :class:`drives.Drive` at its start.
    :param changed: function called after each change.
    """

    def __init__(self, machine, found, changed):
        self._machine = machine
        self._changed = changed
        self._have = {drive.name: drive for drive in found}
        self._wanted = dict(self._have)
        self._nodes = command.nodes(found)
        self._numbers = itertools.count()
        self._units = itertools.count(100)
        self._task = None

    def has(self, volume):
        """Tell whether a volume is currently in a drive."""
        return any(drive.medium is not None and drive.medium.volume == volume
                   for drive in self._have.values())

    def want(self, wanted):
        """Set the desired drives and start to change the media.

        :param wanted: list of :class:`drives.Drive`.
        """
        self._wanted = {drive.name: drive for drive in wanted}
        if self._task is None and self._next() is not None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def close(self):
        """Stop changing media."""
        if self._task is not None:
            self._task.cancel()

    def _next(self):
        """Return the next change as (current drive, desired drive).

        Either of them can be None.
        """
        for name in {**self._have, **self._wanted}:
            have, want = self._have.get(name), self._wanted.get(name)
            drive = have or want
            if drive.cdrom and have is not None:
                if want is not None and have.medium != want.medium:
                    return have, want
            elif (have is None or want is None) and drive.plugged and (
                    drive.bus == 'scsi'):
                return have, want
        return None

    async def _work(self):
        try:
            while step := self._next():
                have, want = step
                try:
                    if have is not None and have.cdrom:
                        await self._exchange(have, want)
                    elif want is not None:
                        await self._plug(want)
                    else:
                        await self._unplug(have)
                except qmp.QmpError as exc:
                    if self._machine.gone.is_set():
                        return
                    LOG.info('%s: cannot change a medium, trying again: %s',
                             self._machine.name, exc)
                    await asyncio.sleep(_ASK_AGAIN)
                else:
                    self._changed()
        finally:
            self._task = None

    async def _exchange(self, have, want):
        execute = self._machine.execute
        if not await self._is_open(have):
            # QEMU asks the guest to release a locked tray.
            await execute('blockdev-open-tray', id=have.id)
        if have.medium is not None:
            await execute('blockdev-remove-medium', id=have.id)
            self._have[have.name] = _with(have, None)
            await self._drop(have.name)
        if want.medium is not None:
            node = await self._add(want)
            try:
                await execute('blockdev-insert-medium', id=have.id,
                              node_name=node)
            except qmp.QmpError:
                await self._drop(have.name)
                raise
        await execute('blockdev-close-tray', id=have.id)
        self._have[have.name] = _with(have, want.medium)

    async def _is_open(self, drive):
        for one in await self._machine.execute('query-block'):
            if drive.id in (one.get('qdev') or '').split('/'):
                return one.get('tray_open', False)
        return False

    async def _add(self, drive):
        node = f'medium{next(self._numbers)}'
        await self._machine.execute('blockdev-add',
                                    **command.blockdev(drive, node))
        self._nodes[drive.name] = node
        return node

    async def _drop(self, name):
        node = self._nodes.get(name)
        if node is not None:
            await self._machine.execute('blockdev-del', node_name=node)
            del self._nodes[name]

    async def _plug(self, drive):
        node = await self._add(drive)
        try:
            await self._machine.execute('device_add', **command.device(
                drive, node, next(self._units)))
        except qmp.QmpError:
            await self._drop(drive.name)
            raise
        self._have[drive.name] = drive

    async def _unplug(self, drive):
        await self._machine.execute('device_del', id=drive.id)
        # SCSI disks are removed without the guest's consent, but the image is
        # in use until the guest's last request has ended.
        while drive.name in self._have:
            try:
                await self._drop(drive.name)
                del self._have[drive.name]
            except qmp.QmpError:
                if self._machine.gone.is_set():
                    raise
                await asyncio.sleep(_ASK_AGAIN)


def _with(drive, medium):
    return dataclasses.replace(drive, medium=medium)
