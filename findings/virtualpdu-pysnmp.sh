#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# virtualpdu 2.2.0 does not start with the newest pysnmp-lextudio that it allows.
#
# OpenStack's emulator of power outlets requires pysnmp-lextudio>=5.0.0, and its
# other requirements have no upper bound either. One expects that the newest
# versions work which "pip install virtualpdu" chooses.
#
# Behaviour: it chooses 6.3.0, which no longer has pysnmp.carrier.asynsock, the
# name by which virtualpdu/pdu/pysnmp_handler.py imports the transport. 6.0.0 has
# it, and needs the standard library's asyncore, which Python 3.12 removed.
#
# Seen with Python 3.11 (with 3.12, 6.0.0 has No module named 'asyncore'):
#   pysnmp-lextudio 6.0.0: imported
#   pysnmp-lextudio 6.3.0: No module named 'pysnmp.carrier.asynsock'

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
# Without libvirt-python, which must be compiled, and is for the driver alone.
venv/bin/pip --quiet install --no-compile --no-deps virtualpdu==2.2.0 pbr==7.1.3 \
    setuptools==84.2.1 pysmi-lextudio==1.4.3 ply==3.11 pyasn1==0.6.0 \
    pyasn1_modules==0.4.1 pysnmpcrypto==0.0.4 cryptography==50.0.2 \
    cffi==2.1.1 pycparser==3.12 requests==2.34.2 urllib3==2.8.0 idna==3.20 \
    certifi==2026.10.19.post1 charset-normalizer==3.5.3 Jinja2==3.1.6 \
    MarkupSafe==3.0.4
for version in 6.0.0 6.3.0; do
    venv/bin/pip --quiet install --no-compile --no-deps --target "$version" \
        "pysnmp-lextudio==$version"
done
timeout 120 venv/bin/python - <<'EOF'
import importlib.util
import os
import subprocess
import sys


def imports(version):
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c',
         'from virtualpdu.pdu import pysnmp_handler'],
        env={**os.environ, 'PYTHONPATH': version}, capture_output=True,
        text=True)
    text = done.stderr.strip().rpartition('ModuleNotFoundError: ')[2]
    print(f'pysnmp-lextudio {version}:', text or 'imported')
    return text or 'imported'


old, new = imports('6.0.0'), imports('6.3.0')
assert old == ('imported' if importlib.util.find_spec('asyncore')
               else "No module named 'asyncore'")
assert new == "No module named 'pysnmp.carrier.asynsock'"
EOF
