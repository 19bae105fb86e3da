#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# pyghmi 1.6.19's client cannot log in to pyghmi 1.6.19's BMC.
#
# The package has an IPMI client and the class Bmc, which virtualbmc is made of.
# Both are expected to understand each other: the response to Open Session says
# which algorithms the BMC has chosen (IPMI 2.0, 13.18), and it refuses those that
# it has not.
#
# Behaviour: the client proposes HMAC-SHA256 (cipher suite 17) and, only when the
# BMC refuses that, HMAC-SHA1. Bmc refuses nothing: it does not read the proposal
# and chooses HMAC-SHA1 (pyghmi/ipmi/private/serversession.py,
# create_open_session_response). The client does not read the choice
# (session.py, _got_rmcp_response), and expects a longer signature in the next
# packet. ipmitool with "-C 3" logs in to the same BMC.
#
# Seen:
#   ipmitool -C 3: Chassis Power is on
#   pyghmi: struct.error, pack expected 32 items for packing (got 20)

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --only-binary :all: --no-deps \
    cffi==2.0.0 cryptography==46.0.3 pycparser==2.23 pyghmi==1.6.19 \
    python-dateutil==2.9.0.post0 six==1.17.0
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

unpack ipmitool=1.8.19-4+deb12u2
export PATH=$folder/debian/usr/bin:$folder/debian/usr/sbin:$PATH
export LD_LIBRARY_PATH=$folder/debian/usr/lib/x86_64-linux-gnu
timeout 60 venv/bin/python - <<'EOF'
import multiprocessing
import os
import socket
import struct
import subprocess

from pyghmi.ipmi import bmc
from pyghmi.ipmi import command

USER, PASSWORD = 'admin', 'password'


class Bmc(bmc.Bmc):

    def get_power_state(self):
        return 'on'


def serve(port):
    Bmc({USER: PASSWORD}, port=port, address='127.0.0.1').listen()


with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as free:
    free.bind(('::ffff:127.0.0.1', 0))
    port = free.getsockname()[1]
server = multiprocessing.get_context('fork').Process(
    target=serve, args=(port,), daemon=True)
server.start()
done = subprocess.run(
    ['ipmitool', '-I', 'lanplus', '-C', '3', '-H', '127.0.0.1', '-p',
     str(port), '-U', USER, '-E', 'power', 'status'],
    env={**os.environ, 'IPMI_PASSWORD': PASSWORD}, stdout=subprocess.PIPE,
    text=True)
print('ipmitool -C 3:', done.stdout.strip())
try:
    command.Command(bmc='127.0.0.1', port=port, userid=USER,
                    password=PASSWORD)
    error = 'logged in'
except struct.error as exc:
    error = f'struct.error, {exc}'
print('pyghmi:', error)
server.terminate()
server.join()
assert done.stdout.strip() == 'Chassis Power is on'
assert error == ('struct.error, pack expected 32 items for packing (got 20)')
EOF
