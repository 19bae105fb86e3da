#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# FreeIPMI 1.6.10 notices that its SDR cache is old and stops.
#
# FreeIPMI keeps the sensor data records of a BMC in a file. One expects a cache
# to be read again when it is out of date, and to belong to one BMC.
#
# Behaviour: the file is named after host and port, and compared with the BMC by
# the number of records and the times of the last changes. If these differ,
# ipmi-sensors prints an error, no sensor, and ends with 1, every time, until
# somebody gives --flush-cache or --sdr-cache-recreate
# (common/toolcommon/tool-sdr-cache-common.c). If they are the same, as for two
# BMCs of one firmware that have an address one after the other, it shows the
# names of the former BMC. The file is below the home directory of the user
# database, whatever HOME says, so tests need --sdr-cache-directory.
#
# Seen:
#   first BMC, changed at 5: sensor Inlet, exit code 0
#   other BMC, changed at 5: sensor Inlet, exit code 0
#   other BMC, changed at 6: no sensor, exit code 1
#   other BMC, changed at 6: no sensor, exit code 1
#   with --sdr-cache-recreate: sensor Outlet, exit code 0

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

unpack freeipmi-tools=1.6.10-1+b1
mkdir cache
export PATH=$folder/debian/usr/bin:$folder/debian/usr/sbin:$PATH
export LD_LIBRARY_PATH=$folder/debian/usr/lib/x86_64-linux-gnu
timeout 120 python3 - <<'EOF'
import socket
import struct
import subprocess
import threading

bmc = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bmc.bind(('127.0.0.1', 0))
PORT = bmc.getsockname()[1]

# A function of request data and requester's sequence number for each network
# function and command. It returns completion code and response data, or None
# for no answer. These make an IPMI 1.5 session without authentication.
commands = {
    (6, 0x01): lambda data, number: bytes(16),
    (6, 0x38): lambda data, number: bytes([0, 1, 1, 4, 0, 0, 0, 0, 0]),
    (6, 0x39): lambda data, number: bytes([0, 1]) + bytes(19),
    (6, 0x3a): lambda data, number: bytes([0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4]),
    (6, 0x3b): lambda data, number: b'\0' + data,
    (6, 0x3c): lambda data, number: b'\0',
}


def checked(part):
    return part + bytes([-sum(part) & 0xff])


def serve():
    outbound = 0
    while True:
        packet, client = bmc.recvfrom(1024)
        if packet[:5] != b'\x06\x00\xff\x07\x00':
            continue
        own, function, _, other, number, command = packet[14:20]
        data = packet[20:-1]
        if command == 0x3a:
            outbound = struct.unpack('<I', data[18:22])[0]
        answer = commands.get((function >> 2, command))
        reply = answer(data, number >> 2) if answer else b'\xc1'
        if reply is None:
            continue
        message = (checked(bytes([other, function + 4]))
                   + checked(bytes([own, number, command]) + reply))
        sequence = 0 if command in (0x38, 0x39) else outbound
        outbound += sequence != 0
        bmc.sendto(packet[:5] + struct.pack('<I', sequence & 0xffffffff)
                   + packet[9:13] + bytes([len(message)]) + message, client)


threading.Thread(target=serve, daemon=True).start()


def sensor(name):
    """Return a compact sensor record (section 43.2) of an OS Boot sensor."""
    body = (bytes([0x20, 0, 1, 7, 1, 0x7f, 0x40, 0x1f, 0x6f])
            + struct.pack('<3H', 0x7f, 0x7f, 0x7f)
            + bytes([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xc0 | len(name)])
            + name.encode())
    return struct.pack('<HBBB', 1, 0x51, 2, len(body)) + body


def sensors(who, *options):
    """Run ipmi-sensors; return the sensor's name, exit code and errors."""
    result = subprocess.run(
        ['ipmi-sensors', '-D', 'LAN', '-a', 'NONE', '-u', 'admin',
         '-h', f'127.0.0.1:{PORT}', '--sdr-cache-directory=cache',
         '--no-header-output', '--comma-separated-output', *options],
        capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
    name = result.stdout.split(',')[1] if result.stdout else None
    print(f"{who}: {f'sensor {name}' if name else 'no sensor'}, "
          f'exit code {result.returncode}')
    return name, result.returncode, result.stderr


name, changed = 'Inlet', 5
commands.update({
    (10, 0x20): lambda data, number: struct.pack(
        '<BBHHIIB', 0, 0x51, 1, 0xffff, changed, changed, 2),
    (10, 0x22): lambda data, number: bytes([0, 1, 0]),
    (10, 0x23): lambda data, number: (
        bytes([0, 0xff, 0xff]) + sensor(name)[data[4]:][:data[5]]),
    (4, 0x2d): lambda data, number: bytes([0, 0, 0xc0, 2, 0x80]),
})
assert sensors('first BMC, changed at 5')[:2] == ('Inlet', 0)
name = 'Outlet'
assert sensors('other BMC, changed at 5')[:2] == ('Inlet', 0)
changed = 6
for _ in range(2):
    shown, code, errors = sensors('other BMC, changed at 6')
    assert (shown, code) == (None, 1)
    assert 'out of date: Please flush the cache' in errors
assert sensors('with --sdr-cache-recreate',
               '--sdr-cache-recreate')[:2] == ('Outlet', 0)
EOF
