# SPDX-License-Identifier: Apache-2.0
"""A process that ends the descendants of the sandbox after its death.

A sandbox that is killed cannot end its containers. Every container is the
leader of a session and has a mark in its environment that its children
inherit. The sandbox writes a line ``SESSION MARK`` for each container that
starts and ``-SESSION MARK`` for each that ends to the standard input of this
program. When standard input ends, all processes in these sessions or with
these marks are killed, and the folder of the pods is removed. The program is
run as a file and imports only the standard library, to use little memory.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

MARK = 'SUSHY_KUBEVIRT_SANDBOX_CONTAINER'

_ROUNDS = 50
_SIGN = MARK.encode() + b'='


def _processes():
    """Yield (process, session) of all processes of this machine."""
    for name in os.listdir('/proc'):
        if not name.isdigit():
            continue
        try:
            with open(f'/proc/{name}/stat', 'rb') as file:
                # The name, in parentheses, may hold anything.
                words = file.read().rpartition(b')')[2].split()
        except OSError:
            continue  # gone meanwhile
        if words and words[0] not in (b'Z', b'X'):
            yield int(name), int(words[3])


def _mark(process):
    """Return the mark in the initial environment of a process."""
    try:
        with open(f'/proc/{process}/environ', 'rb') as file:
            found = file.read()
    except OSError:
        return ''  # gone, or another user's
    at = 0 if found.startswith(_SIGN) else found.find(b'\0' + _SIGN) + 1
    if not at and not found.startswith(_SIGN):
        return ''
    return found[at + len(_SIGN):].partition(b'\0')[0].decode(
        errors='replace')


def kill_all(ended):
    """Kill all remaining processes of some containers.

    :param ended: ``{session: mark}``.
    :returns: number of killed processes.
    """
    count, marks = 0, set(ended.values())
    for process, session in _processes():
        if session in ended or _mark(process) in marks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
                count += 1
    return count


def main(folder):
    """Wait for the end of standard input, then kill all listed containers."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    alive = {}
    for line in sys.stdin:
        number, mark = line.split()
        if int(number) > 0:
            alive[int(number)] = mark
        else:
            alive.pop(-int(number), None)
    for _ in range(_ROUNDS):
        # A child of a process that forks now is found in the next round.
        if not alive or not kill_all(alive):
            break
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    main(sys.argv[1])
