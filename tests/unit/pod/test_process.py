# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
from unittest import mock

from oslotest import base

from sushy_kubevirt.pod import process


class ProcessTestCase(base.BaseTestCase):
    """Command line and errors before the server starts."""

    def run_main(self, *argv, **environ):
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.dict('os.environ', environ, clear=True), \
                contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            try:
                code = process.main(list(argv))
            except SystemExit as exc:
                code = exc.code
        return code, out.getvalue(), err.getvalue()

    def test_help(self):
        code, out, _err = self.run_main('--help')
        self.assertEqual(0, code)
        for name in ('SUSHY_EMULATOR_CONFIG', 'VIRTBMC_HEALTH_PORT',
                     'VIRTBMC_HTTP_PORT'):
            self.assertIn(name, out)

    def test_version(self):
        code, out, _err = self.run_main('--version')
        self.assertEqual(0, code)
        self.assertRegex(out, r'^sushy-kubevirt-redfish \d')

    def test_unknown_argument_is_usage_error(self):
        self.assertEqual(2, self.run_main('--nonsense')[0])

    def test_missing_config_is_an_error(self):
        code, _out, err = self.run_main()
        self.assertEqual(1, code)
        self.assertIn('SUSHY_EMULATOR_CONFIG', err)

    def test_invalid_port_is_an_error(self):
        for port in 'x', '-1', '65536':
            code, _out, err = self.run_main(SUSHY_EMULATOR_CONFIG='/x',
                                            VIRTBMC_HEALTH_PORT=port)
            self.assertEqual(1, code)
            self.assertIn('VIRTBMC_HEALTH_PORT', err)
            code, _out, err = self.run_main(SUSHY_EMULATOR_CONFIG='/x',
                                            VIRTBMC_HTTP_PORT=port)
            self.assertEqual((1, True), (code, 'VIRTBMC_HTTP_PORT' in err))

    def test_listens_on_all_addresses_of_the_family(self):
        for address, wanted in (
                ('10.244.1.7', '0.0.0.0'), ('fd00:10:244::7', '::'),
                ('0.0.0.0', '0.0.0.0'), ('127.54.0.9', '127.54.0.9'),
                ('::1', '::1')):
            with self.subTest(address=address):
                self.assertEqual(wanted, process.listen_address(address))
