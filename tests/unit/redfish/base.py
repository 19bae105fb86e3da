# SPDX-License-Identifier: Apache-2.0
"""Test cases with an emulator and two fake machines."""

import base64
import functools
import pathlib
import tempfile

import bcrypt
import fixtures
from oslotest import base

from sushy_kubevirt.redfish.services import account_files
from tests.unit.redfish import fakes

SESSIONS = '/redfish/v1/SessionService/Sessions'


class RedfishTestCase(base.BaseTestCase):
    """Test case with an emulator.

    :ivar machine: `fakes.Machine` whose system is at ``path``
    :ivar path: URL path of its ComputerSystem
    :ivar client: Flask test client
    """

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
        # Depends on all other properties, and has tests of its own.
        body.pop('@odata.etag', None)
        return body

    def rules(self):
        """Return the routes, which the first request adds."""
        self.client.get('/redfish')
        return list(self.app.url_map.iter_rules())

    def send(self, method, more, body, code, **options):
        """Send a body; return the JSON body of the response, if any."""
        answer = self.client.open(self.path + more, method=method,
                                  json=body, **options)
        self.assertEqual(code, answer.status_code, answer.text)
        if code >= 400:
            self.check_error(answer)
        return answer.json if answer.data else None

    def check_error(self, answer):
        """Check what DSP0266 requires of an error response; return it."""
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
        """Return the messages of an error body, as (key, args)."""
        return [(entry['MessageId'].rpartition('.')[2], entry['MessageArgs'])
                for entry in body['error']['@Message.ExtendedInfo']]


class CacheMixin:
    """Notes which responses are sent again; their machines have versions.

    :ivar responses: the `response_cache.ResponseCache`
    :ivar sent_again: what `observed` has returned for each
    """

    def setUp(self):
        super().setUp()
        self.cluster.versions = {fakes.A: 1, fakes.B: 1}
        self.responses = self.app.sushy_kubevirt.responses
        self.sent_again = []

        find = self.responses.find

        def look(digest):
            response = find(digest)
            if response is not None:
                self.sent_again.append(self.observed(response))
            return response

        self.useFixture(fixtures.MockPatchObject(self.responses, 'find', look))


class AccountsTestCase(RedfishTestCase):
    """Test case with an account for each role, named like the role.

    Their passwords are 'password of ROLE'; ``accounts`` is the path of the
    file.
    """

    def setUp(self):
        # super().setUp() makes the application with this configuration.
        folder = tempfile.TemporaryDirectory()
        self.accounts = pathlib.Path(folder.name, 'accounts')
        self.write(*account_files.ROLES)
        self.CONFIG = {**self.CONFIG, 'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS':
                       str(self.accounts)}
        super().setUp()
        self.addCleanup(folder.cleanup)

    def write(self, *roles):
        """Replace the accounts."""
        self.accounts.write_text(''.join(
            f'{role}:{_digest(role)}:{role}\n' for role in roles))

    def auth(self, role, password=None):
        """Return the header for HTTP Basic authentication."""
        return {'Authorization': 'Basic ' + base64.b64encode(b'%s:%s' % (
            role.encode(), (password or 'password of ' + role).encode())
        ).decode()}

    def log_in(self, role='Administrator', password=None, code=201):
        """Open a session and return the response."""
        answer = self.client.post(SESSIONS, json={
            'UserName': role,
            'Password': password or 'password of ' + role})
        self.assertEqual(code, answer.status_code, answer.text)
        return answer

    def token(self, role='Administrator'):
        """Open a session and return the header with its token."""
        return {'X-Auth-Token': self.log_in(role).headers['X-Auth-Token']}

    def ask(self, path, code, method='GET', **options):
        """Send a request; check the status code and the body of an error."""
        answer = self.client.open(path, method=method, **options)
        self.assertEqual(code, answer.status_code, answer.text)
        if code >= 400 and method != 'HEAD':
            self.check_error(answer)
        return answer


@functools.cache
def _digest(role):
    return bcrypt.hashpw(b'password of ' + role.encode(),
                         bcrypt.gensalt(4)).decode()
