# SPDX-License-Identifier: Apache-2.0
"""Subscriptions in the state Secret, which others can edit."""

import copy
import json

from oslotest import base

from sushy_kubevirt.redfish.services.events import event_options
from sushy_kubevirt.redfish.services.events import event_record
from sushy_kubevirt.redfish.services.events import service_settings
from sushy_kubevirt.redfish.services.events import subscriptions

GOOD = {'destination': 'https://192.0.2.1/', 'created': '2026'}


class State:
    """Sections in memory."""

    def __init__(self, **sections):
        self.sections = sections
        self.others = {}    # what another emulator has written

    def read(self, section, fresh=False):
        if fresh:
            self.sections.update(self.others)
        return self.sections.get(section) or {}

    cached = read

    def update(self, section, edit):
        changed = copy.deepcopy(self.sections.get(section) or {})
        edit(changed)
        self.sections[section] = json.loads(json.dumps(changed))
        return self.sections[section]


class SharesTestCase(base.BaseTestCase):

    def subscriptions(self, **options):
        return subscriptions.Subscriptions(
            State(), event_options.EventOptions(**options))

    def add(self, to, owner, context=''):
        return to.add('https://192.0.2.1/', owner=owner, context=context)

    def test_number_of_each_account(self):
        all_ = self.subscriptions(subscriptions=2)
        first = self.add(all_, 'operator')
        self.add(all_, 'operator')
        error = self.assertRaises(subscriptions.LimitReached, self.add, all_,
                                  'operator')
        self.assertIn('2 subscriptions', str(error))
        self.add(all_, 'admin')
        self.add(all_, 'other')
        self.assertRaises(subscriptions.LimitReached, self.add, all_, 'next')
        all_.remove(first.id)
        self.add(all_, 'next')

    def test_length_of_each_account(self):
        all_ = self.subscriptions()
        context = 'x' * (subscriptions.MAX_LENGTH // 5)
        for _ in range(2):
            first = self.add(all_, 'operator', context)
        self.assertRaises(subscriptions.LimitReached, self.add, all_,
                          'operator', context)
        self.assertRaises(subscriptions.LimitReached, all_.change, first.id,
                          context=2 * context)
        self.assertEqual(context, all_.get(first.id).context)
        one = self.add(all_, 'admin', context)
        self.assertRaises(subscriptions.LimitReached, self.add, all_,
                          'other', context)
        self.add(all_, 'other')
        # To make it shorter is always possible.
        for subscription in first, one:
            all_.change(subscription.id, context='')
        self.add(all_, 'other', context)


class StoredDataTestCase(base.BaseTestCase):

    def store(self, **entries):
        state = State(subscriptions=entries)
        return subscriptions.Subscriptions(state, event_options.EventOptions())

    def test_ignores_invalid_entries(self):
        wrong = {
            'destination': 5, 'created': 5, 'name': [1], 'context': {},
            'owner': None, 'policy': 'no', 'headers': 5, 'filter': [1],
        }
        bad = [{}, None, [], 5, 'x'] + [
            {**GOOD, name: value} for name, value in wrong.items()] + [
            {**GOOD, 'filter': value} for value in (
                {'types': 5}, {'types': 'abc'}, {'messages': [5]},
                {'subordinate': 'x'})] + [
            {**GOOD, 'headers': value} for value in (
                [['X-A', 'b\r\nX-C: d']], [['X\r\n', 'b']], [[5, 6]])]
        store = self.store(good=GOOD, **{
            f'bad-{number}': data for number, data in enumerate(bad)})
        for found in store.all(), store.cached():
            self.assertEqual(['good'], [one.id for one in found])
        for number in range(len(bad)):
            self.assertIsNone(store.get(f'bad-{number}'))
            self.assertIsNone(store.change(f'bad-{number}',
                                           suspended=True))

    def test_ignores_ids_that_are_no_path_segment(self):
        store = self.store(**{id_: GOOD for id_ in (
            '', 'a/../b', '<x>', 'a\n', 'a' * 65)})
        self.assertEqual((), store.all())

    def test_stored_subscription_is_read_back(self):
        store = self.store()
        made = store.add('https://192.0.2.1/', headers=(('X-A', 'secret'),),
                         filter=subscriptions.filters.Filter(
                             types=(event_record.ALERT,), subordinate=True))
        section = store._state.sections['subscriptions']
        # JSON has lists instead of tuples.
        stored = section[made.id]
        stored['headers'] = [list(pair) for pair in stored['headers']]
        stored['filter'] = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in stored['filter'].items()}
        self.assertEqual((made,), store.all())
        self.assertNotIn('secret', repr(made))

    def test_finds_subscription_that_another_emulator_has_made(self):
        """Before a watch or the age of the cache shows it."""
        store = self.store(one=GOOD)
        store._state.others = {'subscriptions': {'one': GOOD, 'two': GOOD}}
        self.assertEqual(1, len(store.all()))
        self.assertEqual('two', store.get('two').id)
        self.assertIsNone(store.get('three'))

    def test_ignores_invalid_settings(self):
        for given in ({'attempts': -1}, {'attempts': 10 ** 30},
                      {'interval': 0}, {'interval': True},
                      {'enabled': 'no'}, {'more': 1}):
            self.assertEqual(service_settings.Settings(),
                             service_settings.cached(State(events=given)))
        self.assertEqual(
            service_settings.Settings(attempts=5, enabled=False),
            service_settings.cached(
                State(events={'attempts': 5, 'enabled': False})
            ),
        )
