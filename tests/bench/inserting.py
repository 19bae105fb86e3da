# SPDX-License-Identifier: Apache-2.0
"""Time to insert a medium, compared with CDI's import of the same image."""

import statistics
import time

from tests.bench import report
from tests.fixtures import image_server

#: Size of the image; small, so that the overhead over CDI is visible.
_BYTES = 1 << 20

_CD = '%s/VirtualMedia/Cd/Actions/VirtualMedia.%sMedia'


def measure(ours, sizes):
    """Import an image with CDI alone and insert it, alternately.

    Both end when a watch reports that the DataVolume has succeeded.

    :returns: iterator of `report.Row`
    """
    cdi, insert, post = [], [], []
    server = ours.useFixture(image_server.ImageServer())
    url = f"{server.url.rstrip('/')}/size-{_BYTES}.iso"
    for number in range(sizes.insert):
        name = f'bench-{number}'
        begin = time.perf_counter()
        ours.sandbox.create('datavolumes', {
            'apiVersion': 'cdi.kubevirt.io/v1beta1', 'kind': 'DataVolume',
            'metadata': {'name': name, 'annotations': {
                'cdi.kubevirt.io/storage.bind.immediate.requested': 'true'}},
            'spec': {'source': {'http': {'url': url}}, 'storage': {
                'resources': {'requests': {'storage': str(_BYTES)}}}}})
        _wait(ours, name)
        cdi.append(time.perf_counter() - begin)
        ours.sandbox.delete('datavolumes', name)

        begin = time.perf_counter()
        ours.emulator.request(
            'POST', _CD % (ours.paths[0], 'Insert'), {'Image': url},
            expect=(200, 204))
        post.append(time.perf_counter() - begin)
        name, = (each['metadata']['name']
                 for each in ours.sandbox.list('datavolumes')
                 if '-bmc-cd-' in each['metadata']['name'])
        _wait(ours, name)
        insert.append(time.perf_counter() - begin)
        ours.emulator.request(
            'POST', _CD % (ours.paths[0], 'Eject'), {}, expect=(200, 204))
        ours.sandbox.wait('datavolumes', name, lambda it: it is None)
    for what, times in (('import of 1 MiB, CDI alone', cdi),
                        ('import of 1 MiB, inserted', insert),
                        ('POST InsertMedia', post)):
        yield report.Row(what, 'ms, median', 1000 * statistics.median(times))


def _wait(ours, name):
    ours.sandbox.wait(
        'datavolumes', name,
        lambda it: it and it.get('status', {}).get('phase') == 'Succeeded')
