#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# QEMU 7.2 acknowledges key events and then drops them.
#
# A QMP command is answered {"return": {}} when it was carried out, and with an
# error if it was not. So one expects that input-send-event, by which
# consoles and tests type, fails or waits when the guest does not read its
# keyboard.
#
# Behaviour: the queue of the PS/2 keyboard has room for 16 bytes, which are
# 8 keys. What does not fit is dropped (hw/input/ps2.c) and the
# command succeeds. Text that is sent faster than the guest's interrupt handler
# reads it loses letters, and the release of a key can be among them.
#
# Seen, with a boot sector that starts to read the keyboard after 26 keys:
#   52 key events acknowledged
#   the guest reads 16 bytes: 1e 9e 30 b0 2e ae 20 a0 12 92 21 a1 22 a2 23 a3
#   those are the letters: abcdefgh

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
unpack 'qemu-system-x86=1:7.2+dfsg-7+deb12u*'
export PATH=$folder/debian/usr/bin:$folder/debian/usr/sbin:$PATH
export LD_LIBRARY_PATH=$folder/debian/usr/lib/x86_64-linux-gnu
timeout 120 python3 - <<'EOF'
import json
import socket
import string
import subprocess

# 16-bit code: say on the serial port that it runs, wait for a byte from
# there, and then send to it what the keyboard controller has.
BOOT_SECTOR = bytes.fromhex(
    'fa'                     # cli
    'baf803 b052 ee'         # mov dx,3f8h; mov al,'R'; out dx,al
    'bafd03'                 # mov dx,3fdh
    'ec a801 74fb'           # wait: in al,dx; test al,1; jz wait
    'e464 a801 74fa'         # poll: in al,64h; test al,1; jz poll
    'e460 baf803 ee ebf2'    # in al,60h; mov dx,3f8h; out dx,al; jmp poll
).ljust(510, b'\0') + b'\x55\xaa'
with open('floppy.img', 'wb') as image:
    image.write(BOOT_SECTOR)


def listen(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    listener.settimeout(30)
    return listener


listeners = [listen('monitor'), listen('serial')]
qemu = subprocess.Popen([
    'qemu-system-x86_64', '-nodefaults', '-display', 'none', '-m', '16',
    '-machine', 'pc,accel=tcg', '-drive', 'file=floppy.img,format=raw,if=floppy',
    '-chardev', 'socket,id=monitor,path=monitor',
    '-mon', 'chardev=monitor,mode=control',
    '-chardev', 'socket,id=serial,path=serial', '-serial', 'chardev:serial'],
    stdin=subprocess.DEVNULL)


def execute(command, **arguments):
    stream.write(json.dumps({'execute': command, 'arguments': arguments}))
    stream.flush()
    while True:
        message = json.loads(stream.readline())
        if 'event' not in message:
            return message


try:
    monitor, serial = (listener.accept()[0] for listener in listeners)
    monitor.settimeout(60)
    serial.settimeout(60)
    stream = monitor.makefile('rw')
    stream.readline()
    execute('qmp_capabilities')
    assert serial.recv(1) == b'R'
    acknowledged = 0
    for letter in string.ascii_lowercase:
        for down in True, False:
            answer = execute('input-send-event', events=[{
                'type': 'key', 'data': {
                    'down': down, 'key': {'type': 'qcode', 'data': letter}}}])
            acknowledged += answer == {'return': {}}
    print(acknowledged, 'key events acknowledged')
    serial.sendall(b'x')
    codes = b''
    while len(codes) < 16:
        codes += serial.recv(100)
    # A key that is pressed now comes next: nothing else is on its way.
    execute('input-send-event', events=[{'type': 'key', 'data': {
        'down': True, 'key': {'type': 'qcode', 'data': 'ret'}}}])
    while not codes.endswith(b'\x1c'):
        codes += serial.recv(100)
    codes = codes[:-1]
finally:
    qemu.kill()
    qemu.wait()
print(f'the guest reads {len(codes)} bytes:', codes.hex(' '))
# The first row of scan code set 1 that has letters, and so on.
keys = dict(zip(range(0x10, 0x1a), 'qwertyuiop'))
keys |= dict(zip(range(0x1e, 0x27), 'asdfghjkl'))
keys |= dict(zip(range(0x2c, 0x33), 'zxcvbnm'))
letters = ''.join(keys[code] for code in codes if code < 0x80)
print('those are the letters:', letters)
assert (acknowledged, len(codes), letters) == (52, 16, 'abcdefgh')
EOF
