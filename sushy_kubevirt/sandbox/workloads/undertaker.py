# SPDX-License-Identifier: Apache-2.0
"""A process that outlives the sandbox by a moment, to end what it started.

The sandbox may be killed so that it can do nothing more. Every container is
the leader of a session, and this program is told of each by its standard
input: ``+SESSION`` and ``-SESSION``, a line each. When that ends, all that
lives in these sessions is killed, and the folder of the pods removed. It
needs the standard library alone and is run as a file, so that it is small.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

_ROUNDS = 50


def sessions():
    """The processes of this machine: pairs of (process, session)."""
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


def bury(ended):
    """Kill all that is left of some sessions.

    :param ended: a set of sessions.
    :returns: how many were alive.
    """
    count = 0
    for process, session in sessions():
        if session in ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
                count += 1
    return count


def main(folder):
    """Wait for the end, then end the rest."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    alive = set()
    for line in sys.stdin.buffer:
        number = int(line)
        if number > 0:
            alive.add(number)
        else:
            alive.discard(-number)
    for _ in range(_ROUNDS):
        # What is about to fork is found in the next round.
        if not alive or not bury(alive):
            break
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    main(sys.argv[1])
