#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Three IPMI clients read three different UUIDs from the same 16 bytes.
#
# Get System GUID returns the bytes of a UUID in reverse order (IPMI 2.0,
# sections 20.8 and 22.14). One expects that every client undoes that, so that a
# BMC is found again by the UUID that another client has shown.
#
# Behaviour: FreeIPMI 1.6.10 reverses the bytes. pyghmi 1.6.19 takes the byte
# order of SMBIOS (util.decode_wireformat_uuid, used by get_inventory), so it is
# wrong for a BMC that follows the standard. ipmitool 1.8.19 guesses: of the byte
# orders of RFC 4122, IPMI and SMBIOS it takes the last one in which the UUID
# would have a version from 1 to 5 (lib/ipmi_mc.c). For a BMC that sends the
# order of RFC 4122, random digits of the UUID decide: of two such machines
# one is shown right and the other wrong.
#
# Seen:
#   UUID d1e38a35-6c5f-4b0e-9a47-2f1c80b7e6d4
#   IPMI order:
#     ipmitool d1e38a35-6c5f-4b0e-9a47-2f1c80b7e6d4
#     FreeIPMI d1e38a35-6c5f-4b0e-9a47-2f1c80b7e6d4
#     pyghmi   80b7e6d4-2f1c-9a47-0e4b-5f6c358ae3d1
#   SMBIOS order:
#     ipmitool d1e38a35-6c5f-4b0e-9a47-2f1c80b7e6d4
#     FreeIPMI d4e6b780-1c2f-479a-4b0e-6c5fd1e38a35
#     pyghmi   d1e38a35-6c5f-4b0e-9a47-2f1c80b7e6d4
#   RFC 4122 order:
#     ipmitool d4e6b780-1c2f-479a-0e4b-5f6c358ae3d1
#     FreeIPMI d4e6b780-1c2f-479a-0e4b-5f6c358ae3d1
#     pyghmi   358ae3d1-5f6c-0e4b-9a47-2f1c80b7e6d4
#   UUID d1e38a35-6c5f-4b0e-9ac7-2f1c80b7e6d4
#   RFC 4122 order:
#     ipmitool d1e38a35-6c5f-4b0e-9ac7-2f1c80b7e6d4
#     FreeIPMI d4e6b780-1c2f-c79a-0e4b-5f6c358ae3d1
#     pyghmi   358ae3d1-5f6c-0e4b-9ac7-2f1c80b7e6d4

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

unpack ipmitool=1.8.19-4+deb12u2 freeipmi-tools=1.6.10-1+b1
export PATH=$folder/debian/usr/bin:$folder/debian/usr/sbin:$PATH
export LD_LIBRARY_PATH=$folder/debian/usr/lib/x86_64-linux-gnu
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps pyghmi==1.6.19
timeout 120 venv/bin/python - <<'EOF'
import re
import socket
import struct
import subprocess
import threading
import uuid

from pyghmi.ipmi.private import util

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


def output(command):
    result = subprocess.run(command.split(), capture_output=True, text=True,
                            timeout=30, stdin=subprocess.DEVNULL)
    return re.search('[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}',
                     result.stdout)[0]


def read(data):
    commands[6, 0x37] = lambda request, number: b'\0' + data
    shown = (
        output(f'ipmitool -I lan -A NONE -H 127.0.0.1 -p {PORT} -U admin '
               'mc guid'),
        output(f'bmc-info -D LAN -a NONE -h 127.0.0.1:{PORT} -u admin '
               '--get-system-guid'),
        util.decode_wireformat_uuid(bytearray(data)).lower())
    for client, text in zip(('ipmitool', 'FreeIPMI', 'pyghmi  '), shown):
        print('   ', client, text)
    return tuple(text == str(guid) for text in shown)


guid = uuid.UUID('d1e38a35-6c5f-4b0e-9a47-2f1c80b7e6d4')
print('UUID', guid)
print('  IPMI order:')
assert read(guid.bytes[::-1]) == (True, True, False)
print('  SMBIOS order:')
assert read(guid.bytes_le) == (True, False, True)
print('  RFC 4122 order:')
assert read(guid.bytes) == (False, False, False)
guid = uuid.UUID('d1e38a35-6c5f-4b0e-9ac7-2f1c80b7e6d4')
print('UUID', guid)
print('  RFC 4122 order:')
assert read(guid.bytes) == (True, False, False)
EOF
