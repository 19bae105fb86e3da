# SPDX-License-Identifier: Apache-2.0
"""What ``tools/test`` tells while it runs: little, and what failed in full.

All that a suite prints is in its log. A reader, and a CI that shows a few
lines of a long output, wants to know which test failed and why.
"""

import io
import re
import sys
import time

# Seconds between two lines that say how far a suite is.
EVERY = 60

# Lines of a test that failed: those of its traceback, and, at the end of
# all, the first and the last of everything.
SHORT = 12
FIRST, LAST = 4, 60

# Characters of a line of them.
WIDE = 240

_DONE = re.compile(r'\{\d+\} .* \.\.\. (ok|FAILED|SKIPPED.*)$')


class Log(io.TextIOBase):
    """A stream for the output of a suite.

    :param name: of the suite.
    :param path: of its log.
    :param verbose: show all of it.
    :param clock: function; tells seconds.
    """

    def __init__(self, name, path, verbose=False, clock=time.monotonic):
        super().__init__()
        self._name = name
        self._file = open(path, 'w')
        self._verbose = verbose
        self._clock = clock
        # What is shown goes where prints went before this took them.
        self._shown = sys.stdout
        self._began = self._told = clock()
        self._tests = self._failed = 0

    def writable(self):
        return True

    def write(self, text):
        self._file.write(text)
        if self._verbose:
            self._shown.write(text)
            return len(text)
        if match := _DONE.match(text):
            self._tests += 1
            self._failed += match[1] == 'FAILED'
        if text.startswith('SKIPPED') or match and match[1].startswith('SK'):
            # What was not run is nothing to keep to ourselves.
            self._shown.write(text.rstrip('\n') + '\n')
        now = self._clock()
        if now - self._told >= EVERY:
            self._told = now
            self._shown.write('%s: %d tests, %d failed, %d s\n' % (
                self._name, self._tests, self._failed, now - self._began))
            self._shown.flush()
        return len(text)

    def flush(self):
        self._file.flush()
        self._shown.flush()

    def close(self):
        if not self.closed:
            super().close()
            self._file.close()


def _cut(lines):
    return [line if len(line) <= WIDE else line[:WIDE] + '...'
            for line in lines]


def briefly(said):
    """The name of a test that failed and the end of its traceback.

    :param said: text; what stestr printed of it, or what a command that
        failed has printed behind a line of its own.
    """
    name, *lines = [line.rstrip() for line in said.splitlines()
                    if line.strip()]
    headings = [number for number, line in enumerate(lines)
                if re.match(r'Captured .*:$', line)]
    for begin, end in zip(headings, headings[1:] + [len(lines)]):
        if lines[begin] == 'Captured traceback:':
            lines = lines[begin + 2:end]
            break
    return '\n'.join(['FAIL: ' + name, *_cut(lines[-SHORT:])])


def fully(said):
    """The same with all that helps to find out why."""
    lines = said.splitlines()
    if len(lines) > FIRST + LAST:
        lines[FIRST:-LAST] = ['[...]']
    return '\n===== failed: ' + '\n'.join(_cut(lines))
