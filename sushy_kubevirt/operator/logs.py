# SPDX-License-Identifier: Apache-2.0
"""The operator's log on standard error: one line for each event.

A line of JSON has members for namespace and name of the BMC that it is about,
so that the lines of one BMC can be found. They are set by `about`.
"""

from __future__ import annotations

from collections import abc
import contextlib
import contextvars
import datetime
import json
import logging
import sys

_object: contextvars.ContextVar[tuple[str, str] | None] = (
    contextvars.ContextVar('object', default=None))

#: Loggers whose level info is for debugging only.
_VERBOSE = 'asyncio', 'urllib3'

#: Logger that warns when more connections become idle than are kept, for
#: example after many watches have ended together.
_CONNECTION_POOL = 'urllib3.connectionpool'


@contextlib.contextmanager
def about(namespace: str, name: str) -> abc.Iterator[None]:
    """Context manager: adds a BMC to the log lines of its body and of tasks
    that are started in it.

    :param namespace: of the BMC
    :param name: of the BMC
    """
    token = _object.set((namespace, name))
    try:
        yield
    finally:
        _object.reset(token)


def configure(form: str, level: str) -> None:
    """Write the process' logs to standard error.

    :param form: ``json`` or ``plain``
    :param level: one of `command_line.LEVELS`
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == 'json' else Plain())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    if level != 'debug':
        for name in _VERBOSE:
            logging.getLogger(name).setLevel(
                max(logging.WARNING, root.level))
        logging.getLogger(_CONNECTION_POOL).setLevel(logging.ERROR)


class Json(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {'time': _time(record), 'level': record.levelname.lower(),
                'logger': record.name, 'message': record.getMessage()}
        line.update(zip(('namespace', 'name'), _object.get() or ()))
        if record.exc_info:
            line['error'] = self.formatException(record.exc_info)
        if record.stack_info:
            line['stack'] = record.stack_info
        return json.dumps(line, ensure_ascii=False)


class Plain(logging.Formatter):
    """Text: time, level, the BMC if there is one, and the message."""

    def format(self, record: logging.LogRecord) -> str:
        bmc = _object.get()
        about = f'{bmc[0]}/{bmc[1]}: ' if bmc else ''
        # A name from a user must not start another line.
        message = record.getMessage().replace('\n', '\\n')
        text = f'{_time(record)} {record.levelname:<7} {about}{message}'
        if record.exc_info:
            text += '\n' + self.formatException(record.exc_info)
        return text


def _time(record: logging.LogRecord) -> str:
    return datetime.datetime.fromtimestamp(
        record.created, datetime.timezone.utc).isoformat(
            timespec='milliseconds').replace('+00:00', 'Z')
