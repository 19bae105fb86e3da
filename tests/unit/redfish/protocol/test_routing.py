# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from oslotest import base
from sushy_tools.emulator import main
from werkzeug import routing as werkzeug_routing

from sushy_kubevirt.emulator import plugin
from sushy_kubevirt.redfish.protocol import routing


class RuleTestCase(base.BaseTestCase):

    def map(self, rule_class):
        return werkzeug_routing.Map([
            rule_class('/Systems/<identity>/<path:rest>', endpoint='rest'),
            rule_class('/Systems/<identity>', endpoint='system'),
            rule_class('/Members/', endpoint='members',
                       defaults={'page': 1}),
            rule_class('/Members/<int:page>', endpoint='members'),
        ]).bind('host')

    def test_urls_are_those_of_werkzeug(self):
        ours, stock = map(self.map, (routing.Rule, werkzeug_routing.Rule))
        for endpoint, values in (
                ('system', {'identity': 'a b/ü'}),
                ('system', {'identity': 'a', 'self': 1, 'rule': 2}),
                ('rest', {'identity': 'a', 'rest': 'b/c'}),
                ('members', {'page': 1}), ('members', {'page': 2})):
            self.assertEqual(stock.build(endpoint, values),
                             ours.build(endpoint, values))
        for path in '/Systems/a', '/Systems/a/b/c', '/Members/2':
            self.assertEqual(stock.match(path), ours.match(path))

    def test_a_rule_makes_no_syntax_trees(self):
        # Fails if werkzeug has another method that does.
        with mock.patch('ast.parse', side_effect=AssertionError):
            self.map(routing.Rule)
            self.assertRaises(AssertionError, self.map,
                              werkzeug_routing.Rule)

    def test_emulator_uses_it(self):
        plugin.enable()
        self.assertIs(routing.Rule, main.Application.url_rule_class)
