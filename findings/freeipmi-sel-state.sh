#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# FreeIPMI 1.6.10 rates the end of a failure as critical as the failure.
#
# An entry of the System Event Log says by one bit whether a state was asserted
# or deasserted. ipmi-sel --output-event-state rates entries for monitoring. One
# expects that a deasserted "Power Supply Failure detected" is no failure.
#
# Behaviour: the rating comes from a table with a column for each direction
# (libfreeipmi/interpret/ipmi-interpret-config-sel.c), and in 440 of its 471 rows
# both are the same. Where they differ, as for some thresholds, the end of a
# critical state is often a warning. The text is the same for both too; only -v
# shows the direction.
#
# Seen:
#   asserted: Power Supply Failure detected, Critical
#   deasserted: Power Supply Failure detected, Critical
#   asserted: Upper Critical - going high, Critical
#   deasserted: Upper Critical - going high, Warning

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
export PATH=$folder/debian/usr/bin:$folder/debian/usr/sbin:$PATH
export LD_LIBRARY_PATH=$folder/debian/usr/lib/x86_64-linux-gnu
timeout 120 python3 - <<'EOF'
import csv
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


def event(number, sensor_type, reading_type, offset, deasserted):
    """Return a system event record (section 32.1)."""
    return struct.pack(
        '<HBIHBBBBBBB', number, 2, 1700000000 + number, 0x20, 4, sensor_type,
        1, reading_type | deasserted << 7, offset, 0xff, 0xff)


# The offsets 1 of Power Supply and 9 of thresholds (sections 42.1 and 42.2).
log = [event(1, 8, 0x6f, 1, False), event(2, 8, 0x6f, 1, True),
       event(3, 1, 1, 9, False), event(4, 1, 1, 9, True)]


def entry(data, number):
    # 0 is the first record, FFFFh the last.
    record = min(max(struct.unpack('<H', data[2:4])[0], 1), len(log))
    following = record + 1 if record < len(log) else 0xffff
    return b'\0' + struct.pack('<H', following) + log[record - 1]


commands.update({
    (10, 0x40): lambda data, number: struct.pack(
        '<BBHHIIB', 0, 0x51, len(log), 0xffff, 0, 0, 2),
    (10, 0x42): lambda data, number: bytes([0, 1, 0]),
    (10, 0x43): entry,
})
result = subprocess.run(
    ['ipmi-sel', '-D', 'LAN', '-a', 'NONE', '-u', 'admin', '-h',
     f'127.0.0.1:{PORT}', '--ignore-sdr-cache', '--output-event-state', '-v',
     '--no-header-output', '--comma-separated-output'],
    capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
rows = [(direction, text, state) for *_, state, direction, text in csv.reader(
    result.stdout.splitlines())]
for direction, text, state in rows:
    print({'Assertion Event': 'asserted',
           'Deassertion Event': 'deasserted'}[direction] + f': {text}, {state}')
assert [state for *_, state in rows] == [
    'Critical', 'Critical', 'Critical', 'Warning'], result
assert rows[0][1] == rows[1][1] == 'Power Supply Failure detected'
EOF
