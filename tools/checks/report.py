# SPDX-License-Identifier: Apache-2.0
"""Output of ``tools/test``: progress of the suites and failed tests.

A suite's complete output is in its log. Users, and a CI that shows only the
last lines, need to know which test failed and why.
"""

import io
import re
import sys
import time

# Seconds between two lines of progress.
PROGRESS_SECONDS = 60

# Number of lines shown of a failed test: the last lines of its traceback in
# the summary, and, after all suites, the first and last lines of its output.
SUMMARY_LINES = 12
FIRST_LINES, LAST_LINES = 4, 60

# Maximum length of such a line, in characters.
MAX_WIDTH = 240

_FINISHED = re.compile(r'\{\d+\} .* \.\.\. (ok|FAILED|SKIPPED.*)$')


class Log(io.TextIOBase):
    """A stream for the output of a suite.

    :param name: name of the suite.
    :param path: path of its log.
    :param verbose: whether to show all output.
    :param shown: stream for what users see.
    :param clock: function that returns the time in seconds.
    """

    def __init__(self, name, path, verbose=False, shown=None,
                 clock=time.monotonic):
        super().__init__()
        self._name = name
        self._file = open(path, 'w')
        self._verbose = verbose
        self._clock = clock
        # Before stdout is redirected to this stream.
        self._shown = shown or sys.stdout
        self._began = self._last_progress = clock()
        self._tests = self._failed = 0

    def writable(self):
        return True

    def write(self, text):
        self._file.write(text)
        if self._verbose:
            self._shown.write(text)
            return len(text)
        if match := _FINISHED.match(text):
            self._tests += 1
            self._failed += match[1] == 'FAILED'
        if text.startswith('SKIPPED') or match and match[1].startswith('SK'):
            # Always show skipped tests.
            self._shown.write(text.rstrip('\n') + '\n')
        now = self._clock()
        if now - self._last_progress >= PROGRESS_SECONDS:
            self._last_progress = now
            self._shown.write(
                f'{self._name}: {self._tests} tests, {self._failed} failed, '
                f'{int(now - self._began)} s\n')
            self._shown.flush()
        return len(text)

    def flush(self):
        self._file.flush()
        self._shown.flush()

    def close(self):
        if not self.closed:
            super().close()
            self._file.close()


def _truncate(lines):
    return [line if len(line) <= MAX_WIDTH else line[:MAX_WIDTH] + '...'
            for line in lines]


def failure_summary(output):
    """Return the name of a failed test and the end of its traceback.

    :param output: text: stestr's output for the test, or the output of a
        failed command after a line with its name.
    """
    name, *lines = [line.rstrip() for line in output.splitlines()
                    if line.strip()]
    headings = [number for number, line in enumerate(lines)
                if re.match(r'Captured .*:$', line)]
    for begin, end in zip(headings, headings[1:] + [len(lines)]):
        if lines[begin] == 'Captured traceback:':
            lines = lines[begin + 2:end]
            break
    return '\n'.join(['FAIL: ' + name, *_truncate(lines[-SUMMARY_LINES:])])


def failure_details(output):
    """Return the output of a failed test, shortened in the middle.

    :param output: text, as in `failure_summary`
    """
    lines = output.splitlines()
    if len(lines) > FIRST_LINES + LAST_LINES:
        lines[FIRST_LINES:-LAST_LINES] = ['[...]']
    return '\n===== failed: ' + '\n'.join(_truncate(lines))
