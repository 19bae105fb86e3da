# SPDX-License-Identifier: Apache-2.0
"""The format of log lines."""

import asyncio
import json
import logging
import sys

from oslotest import base

from sushy_kubevirt.operator import logs


def record(message='It is %s', *args, level=logging.INFO, **more):
    found = logging.LogRecord('a.b', level, 'f.py', 3, message,
                              args or ('so',), more.pop('exc_info', None))
    found.created = 1789000000.1239
    for name, value in more.items():
        setattr(found, name, value)
    return found


def failure():
    try:
        raise ValueError('it broke')
    except ValueError:
        return sys.exc_info()


class LogsTestCase(base.BaseTestCase):

    def json(self, *args, **more):
        text = logs.Json().format(record(*args, **more))
        self.assertNotIn('\n', text)
        return json.loads(text)

    def test_json_fields(self):
        self.assertEqual({
            'time': '2026-09-10T00:26:40.123Z', 'level': 'info',
            'logger': 'a.b', 'message': 'It is so'}, self.json())

    def test_json_with_object(self):
        with logs.about('lab', 'node'):
            found = self.json()
        self.assertEqual(('lab', 'node'),
                         (found['namespace'], found['name']))
        self.assertNotIn('name', self.json())

    def test_json_with_exception(self):
        found = self.json(exc_info=failure(), level=logging.ERROR)
        self.assertEqual('error', found['level'])
        self.assertIn('ValueError: it broke', found['error'])

    def test_json_escapes_control_characters(self):
        self.assertEqual('a\n"b" \u2028 é', self.json(
            '%s', 'a\n"b" \u2028 é')['message'])

    def test_plain_format(self):
        form = logs.Plain().format
        self.assertEqual('2026-09-10T00:26:40.123Z INFO    It is so',
                         form(record()))
        with logs.about('lab', 'node'):
            self.assertEqual(
                '2026-09-10T00:26:40.123Z INFO    lab/node: a\\nb',
                form(record('a\n%s', 'b')))
        self.assertIn('\nTraceback', form(record(exc_info=failure())))

    def test_tasks_inherit_object(self):
        async def log_name(found):
            await asyncio.sleep(0)
            found.append(self.json().get('name'))

        async def main():
            found = []
            tasks = []
            for name in 'abc':
                with logs.about('lab', name):
                    tasks.append(asyncio.create_task(log_name(found)))
            tasks.append(asyncio.create_task(log_name(found)))
            await asyncio.gather(*tasks)
            return found

        self.assertEqual(['a', 'b', 'c', None], asyncio.run(main()))
