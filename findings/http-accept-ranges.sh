#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# QEMU 7.2 and nbdkit 1.32 refuse an HTTP server that serves ranges.
#
# Virtual media and imports read images in pieces by HTTP range requests. A client
# sends Range and looks at the status: 206 with Content-Range is a range.
# Accept-Ranges is optional (RFC 9110, section 14.3), and a server need not
# send it to HEAD. So one expects that a server which answers ranges will do.
#
# Behaviour: both send HEAD first and give up without "Accept-Ranges: bytes" in
# its answer (block/curl.c, plugins/curl/). No range is ever requested.
#
# Seen:
#   server with Accept-Ranges: qemu-img 0, nbdkit 0; requests GET, HEAD
#   server without: qemu-img 1, nbdkit 1; requests HEAD
#   server without, Range of 4 bytes by Python: 206

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# Unpack Debian packages, and those that they need and the system lacks, below
# debian/. Without package lists of the system, read some.
unpack() {
    local apt=(apt-get -qq -o APT::Sandbox::User=root) packages
    if ! packages=$(missing "$@" 2>/dev/null); then
        mkdir -p apt/lists/partial
        apt+=(-o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt")
        "${apt[@]}" update
        packages=$(missing "$@")
    fi
    if [[ -n $packages ]]; then
        xargs "${apt[@]}" download <<<"$packages"
        find . -maxdepth 1 -name '*.deb' -print0 | xargs -0 -I{} dpkg -x {} debian
    fi
}

missing() {
    "${apt[@]}" --simulate --no-install-recommends --allow-downgrades \
        install "$@" | sed -n 's/^Inst \([^ ]*\) [^(]*(\([^ ]*\) .*/\1=\2/p'
}

# Debian keeps only the latest update of a version.
unpack libnbd-bin=1.14.2-1 nbdkit=1.32.5-1 \
    'qemu-block-extra=1:7.2+dfsg-7+deb12u*' 'qemu-utils=1:7.2+dfsg-7+deb12u*'
export PATH=$folder/debian/usr/bin:$folder/debian/usr/sbin:$PATH
export LD_LIBRARY_PATH=$folder/debian/usr/lib/x86_64-linux-gnu
export QEMU_MODULE_DIR=$LD_LIBRARY_PATH/qemu
timeout 120 python3 - <<'EOF'
import http.server
import os
import subprocess
import threading
import urllib.request

IMAGE = bytes(1 << 20)


class Server(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'

    def do_HEAD(self):
        self.answer(200, len(IMAGE))

    def do_GET(self):
        first, last = self.headers['Range'].removeprefix('bytes=').split('-')
        data = IMAGE[int(first):int(last) + 1]
        self.answer(206, len(data), f'bytes {first}-{last}/{len(IMAGE)}')
        self.wfile.write(data)

    def answer(self, status, length, content_range=None):
        methods.add(self.command)
        self.send_response(status)
        self.send_header('Content-Length', str(length))
        if content_range:
            self.send_header('Content-Range', content_range)
        if accept_ranges:
            self.send_header('Accept-Ranges', 'bytes')
        self.end_headers()

    def log_message(self, *args):
        pass


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


def read(name):
    methods.clear()
    qemu = run('qemu-img', 'info', url)
    nbdkit = run('nbdkit', '--unix', '-', plugin, f'url={url}',
                 '--run', 'nbdinfo --size "$uri"')
    print(f'{name}: qemu-img {qemu.returncode}, nbdkit {nbdkit.returncode};',
          'requests', ', '.join(sorted(methods)))
    return qemu, nbdkit


# nbdkit knows only the folder of an installation.
plugin = (os.environ['LD_LIBRARY_PATH']
          + '/nbdkit/plugins/nbdkit-curl-plugin.so')
if not os.path.exists(plugin):
    plugin = 'curl'
methods = set()
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f'http://127.0.0.1:{server.server_port}/disk.img'
accept_ranges = True
results = read('server with Accept-Ranges')
assert [result.returncode for result in results] == [0, 0], results
assert methods == {'HEAD', 'GET'}
accept_ranges = False
results = read('server without')
assert [result.returncode for result in results] == [1, 1], results
assert all("does not support 'range'" in result.stderr for result in results)
assert methods == {'HEAD'}
with urllib.request.urlopen(urllib.request.Request(
        url, headers={'Range': 'bytes=0-3'}), timeout=30) as response:
    print('server without, Range of 4 bytes by Python:', response.status)
    assert (response.status, response.read()) == (206, bytes(4))
EOF
