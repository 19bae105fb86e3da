# SPDX-License-Identifier: Apache-2.0
"""Virtual media of machines of a sandbox, without Redfish in between."""

import itertools

from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import options
from tests.functional import imageserver
from tests.functional import machinecase

S = media.State

_numbers = itertools.count(1)


def drop_medium(spec):
    """Leave the CD-ROM of a VM empty."""
    spec['volumes'] = [volume for volume in spec['volumes']
                       if volume['name'] != 'cd']


def drop_drive(spec):
    """Leave a VM without CD-ROM."""
    drop_medium(spec)
    spec['domain']['devices']['disks'] = [
        disk for disk in spec['domain']['devices']['disks']
        if disk['name'] != 'cd']


class MediaTestCase(machinecase.MachineTestCase):
    """Machines with media; everything is to be gone at the end."""

    GATE = True
    MEDIA = {'allow_loopback': True, 'lapse_seconds': 1.0}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = cls.share(imageserver.ImageServer())

    def setUp(self):
        super().setUp()
        names = ['RebootPolicy', 'DeclarativeHotplugVolumes']
        self.sandbox.set_gates(on=names if self.GATE else names[:1],
                               off=() if self.GATE else names[1:])
        self.addCleanup(self.sandbox.request, 'DELETE', '/sandbox/imports')

    def bmc(self, media_options=None, **settings):
        settings.setdefault('media', options.MediaOptions(
            **dict(self.MEDIA, **(media_options or {}))))
        return super().bmc(**settings)

    def url(self, name=None):
        """The URL of an image that no other test uses."""
        return '%s/%s' % (self.images.url,
                          name or 'image-%d.iso' % next(_numbers))

    def source(self, url=None, **fields):
        return media.Source(url or self.url(), **fields)

    def slow(self, url, delay=0, rate=0):
        """Make imports of a URL slow."""
        self.sandbox.request('POST', '/sandbox/imports', {
            'url': url, 'delay': delay, 'rate': rate}).raise_for_status()

    def fast(self):
        self.sandbox.request('DELETE', '/sandbox/imports').raise_for_status()

    def data_volumes(self, machine=None):
        """Names of the DataVolumes there are, of one machine or all."""
        return sorted(
            volume['metadata']['name']
            for volume in self.sandbox.list('datavolumes')
            if machine is None or any(
                owner['uid'] == machine.uid for owner in
                volume['metadata'].get('ownerReferences') or ()))

    def remembered(self, machine):
        return self.annotations(machine.name).get(
            'sushy-kubevirt.openstack.org/media')

    def drive_of(self, machine, name='cd'):
        """(disk, volume) of a drive in the VM's template, each or None."""
        spec = self.sandbox.vm(machine.name)['spec']['template']['spec']
        return (find(spec['domain']['devices']['disks'], name),
                find(spec['volumes'], name))

    def comes(self, machine, state, device='Cd', seconds=45):
        """Wait until a medium is in a state. :returns: the medium"""
        last = []

        def so():
            last[:] = [machine.medium(device)]
            return (last[0] and last[0].state) is state

        if not machine.cluster.media.wait(so, seconds):
            self.fail(f'{device} is not {state}: {last[0]!r}')
        return last[0]

    def nothing_left(self, machine, seconds=45):
        """Wait until there is nothing of any medium of a machine."""
        last = []

        def clean():
            last[:] = [self.data_volumes(machine),
                       self.remembered(machine),
                       self.owned('persistentvolumeclaims', machine),
                       self.owned('secrets', machine)]
            return not any(last)

        try:
            self.until('nothing left', clean, seconds)
        except self.failureException:
            self.fail(f'There is left: {last!r}')

    def owned(self, plural, machine):
        """Names of objects that are named as those of a machine's media."""
        return [obj['metadata']['name']
                for obj in self.sandbox.list(plural)
                if obj['metadata']['name'].startswith(machine.name + '-bmc-')]

    def told(self, bmc):
        """A list that gets (machine's name, device, old, new)."""
        found = []
        media.subscribe(bmc, lambda machine, device, old, new: found.append(
            (machine.name, device, old, new)))
        return found


class UploadingTestCase(MediaTestCase):
    """With the way to CDI's upload proxy, as ``proxy``."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        url, ca = cls.sandbox.upload_proxy()
        cls.proxy = {'upload_proxy_url': url, 'upload_proxy_ca': str(ca)}

    def uploading(self, mode='upload', **more):
        return self.bmc(dict(self.proxy, mode=mode, **more))


def find(items, name):
    for item in items:
        if item['name'] == name:
            return item
    return None
