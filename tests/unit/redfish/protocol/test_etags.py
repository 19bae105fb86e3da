# SPDX-License-Identifier: Apache-2.0

import threading

from oslotest import base as oslo

from sushy_kubevirt.redfish.protocol import etags
from tests.unit.redfish import base
from tests.unit.redfish import fakes

RESET = '/Actions/ComputerSystem.Reset'


class TestMatch(oslo.BaseTestCase):

    def test_weak_comparison(self):
        tag = 'W/"a"'
        for header in ('W/"a"', '"a"', '*', ' * ', '"x", W/"a"', '"x","a"'):
            self.assertTrue(etags.match(header, tag), header)
        for header in ('', '"b"', 'a', 'W/"b", "c"', '"*"'):
            self.assertFalse(etags.match(header, tag), header)

    def test_etag_ignores_date_time(self):
        body = {'@odata.id': '/x', 'DateTime': 'now', 'Name': 'x'}
        tag = etags.compute(body)
        self.assertRegex(tag, '^W/"[0-9a-f]{16}"$')
        self.assertEqual(tag, etags.compute({**body, 'DateTime': 'later'}))
        self.assertNotEqual(tag, etags.compute({**body, 'Name': 'y'}))


class TestConditions(base.RedfishTestCase):

    def tag(self, path=None):
        return self.client.get(path or self.path).headers['ETag']

    def ask(self, method, code, path=None, body=None, **headers):
        answer = self.client.open(
            path or self.path, method=method, json=body,
            headers={name.replace('_', '-'): value
                     for name, value in headers.items()})
        self.assertEqual(code, answer.status_code, answer.text)
        if code >= 400 and method != 'HEAD':
            self.check_error(answer)
        return answer

    def test_header_equals_property(self):
        answer = self.client.get(self.path)
        self.assertEqual(answer.headers['ETag'], answer.json['@odata.etag'])

    def test_if_none_match_gets_304(self):
        tag = self.tag()
        for method in 'GET', 'HEAD':
            answer = self.ask(method, 304, If_None_Match=tag)
            self.assertEqual(b'', answer.data)
            self.assertEqual(tag, answer.headers['ETag'])
            self.assertEqual('4.0', answer.headers['OData-Version'])
        self.machine._indicator = 'Lit'
        answer = self.ask('GET', 200, If_None_Match=tag)
        self.assertNotEqual(tag, answer.headers['ETag'])

    def test_if_match_of_reads_is_ignored(self):
        tag = self.tag()
        for method in 'GET', 'HEAD':
            for header in (tag, '"x"', '*', ''):
                answer = self.ask(method, 200, If_Match=header)
                self.assertEqual(tag, answer.headers['ETag'])
            self.ask(method, 304, If_Match='"x"', If_None_Match=tag)
            self.ask(method, 404, self.path + '/none', If_Match='*')

    def test_conditional_patch(self):
        change = {'IndicatorLED': 'Lit'}
        tag = self.tag()
        self.ask('PATCH', 204, body=change, If_Match=tag)
        self.ask('PATCH', 204, body=change, If_Match='"x", ' + tag[2:])
        self.ask('PATCH', 204, body=change, If_Match='*')
        self.ask('PATCH', 204, body=change, If_None_Match='"x"')
        self.assertEqual(4, len(self.machine.calls))
        for headers in ({'If_Match': '"x"'}, {'If_None_Match': tag},
                        {'If_None_Match': '*'}):
            answer = self.ask('PATCH', 412, body=change, **headers)
            self.assertIn('PreconditionFailed', answer.text)
        self.machine._indicator = 'Lit'
        self.ask('PATCH', 412, body=change, If_Match=tag)
        self.assertEqual(4, len(self.machine.calls))

    def test_conditions_of_post_are_ignored(self):
        body = {'ResetType': 'On'}
        for headers in ({'If_Match': self.tag()}, {'If_Match': '"x"'},
                        {'If_None_Match': '*'}):
            self.ask('POST', 204, self.path + RESET, body, **headers)
        self.assertEqual(3, len(self.machine.calls))
        self.ask('POST', 201, '/redfish/v1/EventService/Subscriptions',
                 {'Destination': 'http://192.0.2.1/', 'Protocol': 'Redfish'},
                 If_Match='"x"')

    def test_conditional_delete(self):
        collection = '/redfish/v1/EventService/Subscriptions'
        path = self.ask('POST', 201, collection, {
            'Destination': 'http://192.0.2.1/', 'Protocol': 'Redfish'}
        ).headers['Location']
        self.ask('DELETE', 412, path, If_Match='"x"')
        self.ask('DELETE', 204, path, If_Match=self.tag(path))

    def test_missing_resource_gets_404_before_412(self):
        path = self.path.replace(fakes.A, 'none')
        self.ask('PATCH', 404, path, {}, If_Match='*')
        for more in '/Nonsense', RESET + '/Nonsense':
            self.ask('PATCH', 404, self.path + more, {}, If_Match='*')

    def test_concurrent_patches_with_one_etag(self):
        """Only the first of several conditional changes succeeds."""
        tag = self.tag()
        entered, unblock = threading.Event(), threading.Event()

        def set_indicator(state):
            entered.set()
            unblock.wait(10)
            self.machine._indicator = state

        self.machine.set_indicator = set_indicator
        codes = []

        def change():
            codes.append(self.app.test_client().patch(
                self.path, json={'IndicatorLED': 'Lit'},
                headers={'If-Match': tag}).status_code)

        threads = [threading.Thread(target=change) for _ in range(3)]
        for thread in threads:
            thread.start()
        entered.wait(10)
        unblock.set()
        for thread in threads:
            thread.join(10)
        self.assertEqual([204, 412, 412], sorted(codes))

    def test_failed_requests_release_locks(self):
        for _ in range(3):
            self.ask('PATCH', 400, body={'Nonsense': 1}, If_Match='*')
        self.machine.fails = KeyError('x')
        self.ask('PATCH', 500, body={'IndicatorLED': 'Lit'}, If_Match='*')
        self.machine.fails = None
        self.ask('PATCH', 204, body={'IndicatorLED': 'Lit'}, If_Match='*')
        self.assertFalse(any(lock.locked() for lock in etags._locks))
