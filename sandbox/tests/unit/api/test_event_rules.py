# SPDX-License-Identifier: Apache-2.0
import unittest

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from tests.unit.api import base

ABOUT = {'kind': 'VirtualMachine', 'name': 'a', 'namespace': 'default'}
NEW = {'eventTime': '2026-11-01T10:00:00.000001Z', 'involvedObject': ABOUT,
       'reportingComponent': 'a.test/b', 'reportingInstance': 'b-1',
       'action': 'Act', 'reason': 'Why', 'message': 'm' * 1024}

# (Event, field of the error or None)
EVENTS = (
    (NEW, None),
    ({'involvedObject': ABOUT}, None),
    ({'involvedObject': {**ABOUT, 'namespace': 'other'}},
     'involvedObject.namespace'),
    ({'involvedObject': ABOUT, 'message': 'm' * 1025}, None),
    *(({**NEW, name: ''}, field) for name, field in (
        ('action', 'action'), ('reason', 'reason'),
        ('reportingInstance', 'reportingInstance'),
        ('reportingComponent', 'reportingController'))),
    ({**NEW, 'reportingComponent': 'a b'}, 'reportingController'),
    # The limit is one of bytes.
    ({**NEW, 'message': 'm' * 1023 + 'ü'}, 'message'),
    ({**NEW, 'action': 'a' * 129}, 'action'),
    *(({**NEW, 'eventTime': text}, 'eventTime') for text in (
        '2026-11-01T10:00:00Z', '2026-11-01T10:00:00.001Z')),
)


class EventRulesTestCase(unittest.TestCase):

    def test_events(self):
        store = base.cluster().store
        for number, (event, field) in enumerate(EVENTS):
            with self.subTest(event=event):
                event = {'metadata': {'name': f'e{number}',
                                      'namespace': 'default'}, **event}
                if field is None:
                    store.create(core.EVENT, event)
                    continue
                with self.assertRaises(errors.ApiError) as caught:
                    store.create(core.EVENT, event)
                self.assertIn(field, str(caught.exception))

    def test_names(self):
        """Names with capitals, of baremetal-operator for example, are valid.
        """
        store = base.cluster().store
        for name, valid in (('Host.Registered', True), ('a/b', False)):
            event = {'metadata': {'name': name, 'namespace': 'default'},
                     'involvedObject': ABOUT}
            with self.subTest(name=name):
                if valid:
                    store.create(core.EVENT, event)
                    continue
                with self.assertRaises(errors.ApiError):
                    store.create(core.EVENT, event)
