#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# FreeIPMI 1.6.10 repeats a command in a way that no BMC can tell from a new one.
#
# IPMI over LAN loses packets, so a client sends a command again if no answer
# comes in time. A repeated request is expected to have the same requester's
# sequence number (rqSeq), so that a BMC that has carried it out answers again
# without a second power cycle. Only the session sequence number has to be new.
#
# Behaviour: ipmitool 1.8.19 keeps rqSeq. FreeIPMI counts it up for every
# transmission (libfreeipmi/api/ipmi-lan-session-common.c), so a BMC that is
# slower than the retransmission timeout, a second by default, is asked for one
# power cycle after the other. Both clients then report success.
#
# Seen:
#   ipmitool: Chassis Control sent twice, rqSeq the same
#   ipmi-chassis: Chassis Control sent twice, rqSeq differs

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


def control(data, number):
    """Answer Chassis Control when it has come twice."""
    requests.append((data, number))
    return b'\0' if len(requests) == 2 else None


def same_number(command):
    """Return whether the repeated request has the rqSeq of the first."""
    requests.clear()
    subprocess.run(command.split(), check=True, timeout=30,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    (first, number), (second, again) = requests
    assert first == second == b'\x02'
    print(f'{command.split()[0]}: Chassis Control sent twice, rqSeq',
          'the same' if number == again else 'differs')
    return number == again


requests = []
commands[0, 2] = control
assert same_number(f'ipmitool -I lan -A NONE -H 127.0.0.1 -p {PORT} '
                   '-U admin chassis power cycle')
assert not same_number(f'ipmi-chassis -D LAN -a NONE -h 127.0.0.1:{PORT} '
                       '-u admin --chassis-control=POWER-CYCLE')
EOF
