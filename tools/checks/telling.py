# SPDX-License-Identifier: Apache-2.0
"""The output of ``tools/test``: little progress, and failures in full.

A suite's complete output is in its log. A user, and a CI that shows only a
few lines of a long output, needs to know which test failed and why.
"""

import io
import re
import sys
import time

# Seconds between two lines of progress.
EVERY = 60

# Number of lines shown of a failed test: the last of its traceback (SHORT)
# and, after all suites, the first and the last of its whole output.
SHORT = 12
FIRST, LAST = 4, 60

# Maximum length of such a line, in characters.
WIDE = 240

_DONE = re.compile(r'\{\d+\} .* \.\.\. (ok|FAILED|SKIPPED.*)$')


class Log(io.TextIOBase):
    """A stream for the output of a suite.

    :param name: name of the suite.
    :param path: path of its log.
    :param verbose: whether to show all output.
    :param clock: function that returns the time in seconds.
    """

    def __init__(self, name, path, verbose=False, clock=time.monotonic):
        super().__init__()
        self._name = name
        self._file = open(path, 'w')
        self._verbose = verbose
        self._clock = clock
        # The original stdout, before it is redirected to this stream.
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
            # Always show skipped tests.
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
    """Return the name of a failed test and the end of its traceback.

    :param said: text: stestr's output for the test, or the output of a failed
        command after a line with its name.
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
    """Return the failed test's output, shortened in the middle."""
    lines = said.splitlines()
    if len(lines) > FIRST + LAST:
        lines[FIRST:-LAST] = ['[...]']
    return '\n===== failed: ' + '\n'.join(_cut(lines))
