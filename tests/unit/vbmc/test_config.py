# SPDX-License-Identifier: Apache-2.0
import fixtures
from oslotest import base

from vbmc_kubevirt import config
from vbmc_kubevirt import upstream


class SettingsTest(base.BaseTestCase):

    def load(self, **section):
        with fixtures.MockPatchObject(upstream, 'CONF',
                                      {'kubevirt': section}):
            return config.load()

    def test_defaults(self):
        with fixtures.MockPatchObject(upstream, 'CONF', {}):
            loaded = config.load()
        self.assertEqual(config.Settings(), loaded)
        self.assertEqual(
            (None, 'RerunOnFailure', 7.0),
            (
                loaded.kubeconfig,
                loaded.machine_options.run_strategy,
                loaded.machine_options.write_deadline,
            ),
        )

    def test_options_of_every_type(self):
        loaded = self.load(kubeconfig='/k', context='', namespace='lab',
                           run_strategy='Manual', write_deadline='5',
                           page_size='7', reconcile='False')
        self.assertEqual(
            ('/k', None, 'lab', 'Manual', 5.0, 7, False),
            (
                loaded.kubeconfig,
                loaded.context,
                loaded.namespace,
                loaded.machine_options.run_strategy,
                loaded.machine_options.write_deadline,
                loaded.machine_options.page_size,
                loaded.machine_options.reconcile,
            ),
        )

    def test_state_secret(self):
        self.assertEqual('', self.load(state_secret='').state_secret)
        self.assertEqual('lab/state', self.load(
            state_secret='lab/state').state_secret)
        self.assertRaisesRegex(
            upstream.VirtualBMCError, "must be namespace/name .*'lab'",
            self.load, state_secret='lab')

    def test_accepts_former_name_of_reconcile(self):
        loaded = self.load(keeper='false')
        self.assertFalse(loaded.machine_options.reconcile)

    def test_error_names_option_and_value(self):
        self.assertRaisesRegex(
            upstream.VirtualBMCError, r'Unknown option kubconfig in section '
            r'\[kubevirt\]; supported: kubeconfig, ', self.load,
            kubconfig='x')
        for name, value in (('page_size', '1.5'), ('reconcile', 'perhaps'),
                            ('write_deadline', 'long'),
                            ('write_deadline', '-1'),
                            ('stale_seconds', 'nan'), ('page_size', '0'),
                            ('request_timeout', 'inf'),
                            ('run_strategy', 'Halted'),
                            ('run_strategy', 'always')):
            self.assertRaisesRegex(
                upstream.VirtualBMCError,
                f"Invalid value '{value}' of option {name} in section",
                self.load, **{name: value})
