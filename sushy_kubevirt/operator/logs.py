# SPDX-License-Identifier: Apache-2.0
"""What the operator writes on standard error, one line for each thing.

A line of JSON says which BMC it is about in members of its own, so that all
that happened to one can be found. Whoever works on a BMC says so once, by
`about`; nobody passes names to the logger.
"""

import contextlib
import contextvars
import datetime
import json
import logging
import sys

_object = contextvars.ContextVar('object', default=None)

#: What tells of each request or event, which is of no use but for debugging.
_CHATTY = 'kopf', 'asyncio', 'aiohttp.access'

#: Have a traceback for each request that is no HTTP, and for each watch of
#: kopf's that gives up, of which `process` tells in a line.
_DEAF = ('aiohttp.server', 'kopf._core.reactor.orchestration',
         'kopf._core.reactor.running')


@contextlib.contextmanager
def about(namespace, name):
    """All that is logged within, and in tasks started within, is about a
    BMC.

    :param namespace: of the BMC
    :param name: of the BMC
    """
    token = _object.set((namespace, name))
    try:
        yield
    finally:
        _object.reset(token)


def configure(form, level):
    """Have the process' logs written.

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
        for name in _CHATTY:
            logging.getLogger(name).setLevel(
                max(logging.WARNING, root.level))
        for name in _DEAF:
            logging.getLogger(name).setLevel(logging.CRITICAL)


class Json(logging.Formatter):
    """A JSON object a line."""

    def format(self, record):
        line = {'time': _time(record), 'level': record.levelname.lower(),
                'logger': record.name, 'message': record.getMessage()}
        namespace, name = _about(record)
        if name:
            line.update(namespace=namespace, name=name)
        if record.exc_info:
            line['error'] = self.formatException(record.exc_info)
        if record.stack_info:
            line['stack'] = record.stack_info
        return json.dumps(line, ensure_ascii=False)


class Plain(logging.Formatter):
    """For people: time, level, the BMC if there is one, what happened."""

    def format(self, record):
        namespace, name = _about(record)
        text = '%s %-7s %s%s' % (
            _time(record), record.levelname,
            '%s/%s: ' % (namespace, name) if name else '',
            # One line, whatever somebody named something.
            record.getMessage().replace('\n', '\\n'))
        if record.exc_info:
            text += '\n' + self.formatException(record.exc_info)
        return text


def _about(record):
    """:returns: (namespace, name), or (None, None)"""
    # What kopf logs of an object has it from there.
    reference = getattr(record, 'k8s_ref', None)
    if isinstance(reference, dict):
        return reference.get('namespace'), reference.get('name')
    return _object.get() or (None, None)


def _time(record):
    return datetime.datetime.fromtimestamp(
        record.created, datetime.timezone.utc).isoformat(
            timespec='milliseconds').replace('+00:00', 'Z')
