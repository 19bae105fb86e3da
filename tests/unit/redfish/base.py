# SPDX-License-Identifier: Apache-2.0
"""A test case with an emulator over two machines."""

from oslotest import base

from tests.unit.redfish import fakes


class RedfishTestCase(base.BaseTestCase):
    """``machine`` is the machine at ``path``; ``client`` asks for it."""

    CONFIG = {}

    def setUp(self):
        super().setUp()
        self.machine = fakes.Machine(fakes.A, 'vm-a')
        self.cluster = fakes.Cluster(
            self.machine, fakes.Machine(fakes.B, 'vm-b'))
        self.app = fakes.application(self, self.cluster, **self.CONFIG)
        self.client = self.app.test_client()
        self.path = '/redfish/v1/Systems/' + fakes.A

    def get(self, more='', path=None, code=200):
        answer = self.client.get((path or self.path) + more)
        self.assertEqual(code, answer.status_code, answer.text)
        body = answer.json
        # Made of all the rest; it has tests of its own.
        body.pop('@odata.etag', None)
        return body

    def send(self, method, more, body, code, **options):
        """Send a body; the JSON of the answer, if it has one."""
        answer = self.client.open(self.path + more, method=method,
                                  json=body, **options)
        self.assertEqual(code, answer.status_code, answer.text)
        if code >= 400:
            self.check_error(answer)
        return answer.json if answer.data else None

    def check_error(self, answer):
        """What every error response has to have (DSP0266)."""
        self.assertEqual('application/json', answer.content_type)
        error = answer.json['error']
        self.assertEqual({'code', 'message', '@Message.ExtendedInfo'},
                         set(error))
        self.assertTrue(error['@Message.ExtendedInfo'])
        for entry in error['@Message.ExtendedInfo']:
            for name in ('MessageId', 'Message', 'MessageArgs',
                         'MessageSeverity', 'Severity', 'Resolution'):
                self.assertIn(name, entry)
            self.assertIn(entry['Message'], error['message'])
        self.assertNotIn('Traceback', answer.text)
        return error

    def entries(self, body):
        """The entries of an error body, as (key, args)."""
        return [(entry['MessageId'].rpartition('.')[2], entry['MessageArgs'])
                for entry in body['error']['@Message.ExtendedInfo']]
