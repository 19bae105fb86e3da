#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# BusyBox 1.35's shell drops what is typed at a prompt in the first line.
#
# With each prompt the shell asks the terminal for the position of the cursor
# (ESC [ 6 n). A terminal that emulates one, such as the console of a web page,
# answers ESC [ row ; column R at once; a plain serial connection does not. So
# one expects that a test or a person may type as soon as the prompt is there.
#
# Behaviour: ESC [ 1 ; 3 and ESC [ 1 ; 5 begin the keys Alt+Right, Ctrl+Right
# and their like. In the first line, thus after "clear", the usual prompts "# "
# and "~ # " end in just these columns. The shell compares the answer with keys
# first, has then read its end, and takes what follows for more of the answer:
# up to 10 characters, until 50 ms pass without one (libbb/read_key.c).
#
# Seen, with "echo abcdefghij" typed right after the answer:
#   row 1, column 2: abcdefghij
#   row 1, column 3: fghij: not found
#   row 1, column 4: abcdefghij
#   row 1, column 5: fghij: not found
#   row 2, column 3: abcdefghij
#   row 2, column 5: abcdefghij

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
unpack 'busybox-static=1:1.35.0-4+deb12u*'
timeout 120 python3 - <<'EOF'
import os
import pty
import re
import select
import shutil
import signal

# The system's, if that is the pinned one.
BUSYBOX = 'debian/bin/busybox'
if not os.path.exists(BUSYBOX):
    BUSYBOX = shutil.which('busybox')
TEXT = 'abcdefghij'


def read(terminal, end):
    """Read from a terminal up to a text."""
    output = b''
    while not output.endswith(end):
        ready, _, _ = select.select([terminal], [], [], 20)
        assert ready, output
        output += os.read(terminal, 1000)
    return output.decode()


def printed(row, column):
    """Return what the shell prints for a command typed after the answer."""
    child, terminal = pty.fork()
    if not child:
        os.execve(BUSYBOX, ['sh'], {'PS1': '# ', 'TERM': 'linux'})
    try:
        read(terminal, b'# \x1b[6n')
        os.write(terminal, f'\x1b[{row};{column}Recho {TEXT}\n'.encode())
        lines = read(terminal, b'\r\n# \x1b[6n').splitlines()
        return re.sub('^.*sh: ', '', lines[-2])
    finally:
        os.close(terminal)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


for row, column in (1, 2), (1, 3), (1, 4), (1, 5), (2, 3), (2, 5):
    result = printed(row, column)
    print(f'row {row}, column {column}: {result}')
    assert result == ('fghij: not found' if row == 1 and column in (3, 5)
                      else TEXT)
EOF
