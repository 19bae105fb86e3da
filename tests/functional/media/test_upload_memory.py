# SPDX-License-Identifier: Apache-2.0
"""Memory use of an upload, which does not depend on the size of the image.

The test uploads a quarter of a GiB. To upload ten GiB by hand, run
``GIB=10 python -m unittest tests.functional.media.test_upload_memory``.
"""

import json
import os
import subprocess
import sys

from oslotest import base

from tests.fixtures import checkout
from tests.fixtures import file_servers

SIZE = int(float(os.environ.get('GIB', '0.25')) * 2 ** 30)

_PIECE = bytes(1 << 20)

#: Runs in a separate process, which resets its peak before the upload.
_PROGRAM = '''
import json, sys
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import upload_stream
from sushy_kubevirt.machine import options

def figure(name):
    with open('/proc/self/status') as f:
        return next(int(line.split()[1]) for line in f
                    if line.startswith(name + ':'))

source, proxy, ca = sys.argv[1:]
sent = [0]
def progress(count, total):
    sent[0] = count
with open('/proc/self/clear_refs', 'w') as f:
    f.write('5')
before = figure('VmRSS')
upload_stream.stream(
    model.Source(source), proxy, 'token',
    options.MediaOptions(allow_loopback=True), proxy_ca=ca,
    progress=progress)
print(json.dumps({'sent': sent[0], 'KiB': figure('VmHWM') - before}))
'''


def generate(handler):
    """Send an image of SIZE bytes in pieces."""
    handler.send_response(200)
    handler.send_header('Content-Length', str(SIZE))
    handler.end_headers()
    left = SIZE
    while left:
        piece = _PIECE[:left] if left < len(_PIECE) else _PIECE
        handler.wfile.write(piece)
        left -= len(piece)


def discard(handler):
    """Read and discard an upload."""
    left = int(handler.headers['Content-Length'])
    buffer = bytearray(1 << 20)
    while left:
        got = handler.rfile.readinto(memoryview(buffer)[:left])
        if not got:
            raise OSError
        left -= got
    file_servers.send(handler, 200)


class TestUploadMemory(base.BaseTestCase):

    def test_upload_needs_less_than_16_mib(self):
        pair = file_servers.pair()
        source = self.useFixture(file_servers.Server(generate))
        proxy = self.useFixture(file_servers.Server(discard, pair))
        found = json.loads(subprocess.run(
            [sys.executable, '-c', _PROGRAM, source.url + '/a.iso',
             proxy.url, pair[0]], cwd=checkout.ROOT, check=True,
            stdout=subprocess.PIPE, timeout=60 + SIZE / 2 ** 23).stdout)
        print('%(sent)d bytes in %(KiB)d KiB of further memory' % found,
              file=sys.stderr)
        self.assertEqual(SIZE, found['sent'])
        # A few buffers and TLS; the documented limit is 64 MiB.
        self.assertLess(found['KiB'], 16 * 1024)
