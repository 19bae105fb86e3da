#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# oslo.utils 10.2.0 sees a GPT disk in an ISO image that has none.
#
# Most bootable ISO images are hybrid: their first sector is a DOS boot sector,
# so that they also boot from a USB stick. format_inspector, by which Ironic,
# Glance and Nova tell formats, is expected to say "iso" as for other ISO images,
# or at most "iso" and a DOS partition table.
#
# Behaviour: its inspector for GPT matches every boot sector with the signature
# AA55h that is not FAT's, and does not look for a GPT. So two formats match,
# and detect_file_format() raises an error in place of an answer
# (oslo_utils/imageutils/format_inspector.py, GPTInspector). Whoever has hybrid
# images must read the wrapper's property formats and decide.
#
# Seen:
#   plain.iso: iso
#   hybrid.iso: Multiple formats detected: gpt, iso; "EFI PART" in it: no

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

unpack xorriso=1.5.4-4
export PATH=$folder/debian/usr/bin:$folder/debian/usr/sbin:$PATH
export LD_LIBRARY_PATH=$folder/debian/usr/lib/x86_64-linux-gnu
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps \
    cffi==2.1.1 cryptography==50.0.2 iso8601==2.1.0 netaddr==1.3.0 \
    oslo.i18n==6.9.0 oslo.utils==10.2.0 packaging==26.4 pbr==7.1.3 \
    psutil==7.2.2 pycparser==3.12 pyparsing==3.3.3 PyYAML==6.0.4
mkdir content
echo text > content/file
xorriso -as mkisofs -quiet -V config-2 -o plain.iso content 2>/dev/null
xorriso -as mkisofs -quiet -V config-2 --protective-msdos-label \
    -o hybrid.iso content 2>/dev/null
timeout 120 venv/bin/python - <<'EOF'
import pathlib

from oslo_utils.imageutils import format_inspector

print('plain.iso:', format_inspector.detect_file_format('plain.iso'))
assert str(format_inspector.detect_file_format('plain.iso')) == 'iso'
try:
    format_inspector.detect_file_format('hybrid.iso')
except format_inspector.ImageFormatError as exc:
    reason, _, formats = str(exc).partition(': ')
    formats = sorted(formats.split(','))
signature = b'EFI PART' in pathlib.Path('hybrid.iso').read_bytes()
print(f"hybrid.iso: {reason}: {', '.join(formats)};",
      '"EFI PART" in it:', 'yes' if signature else 'no')
assert (reason, formats, signature) == (
    'Multiple formats detected', ['gpt', 'iso'], False)
EOF
