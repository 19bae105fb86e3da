# SPDX-License-Identifier: Apache-2.0
"""DMTF's use-case checkers report no failure.

Each checker of ``rf_use_case_checkers`` is one test.
"""

import re

import openpyxl

from tests.clients import case
from tests.clients import environment


class UseCasesTestCase(case.ClientTestCase):

    CLIENT = 'redfish_use_case_checkers'

    @classmethod
    def version(cls):
        return environment.PYTHON.version_of(cls.CLIENT)

    def check(self, name, least, *reasons):
        """Run a checker.

        :param name: as its option ``--test-list`` expects it.
        :param least: number of checks that must pass, so that a checker which
            skipped everything is a failure.
        :param reasons: regular expressions that match why checks are skipped,
            each of them at least one; the table's page explains them.
        """
        reports = self.home / name
        output = self.run_command(
            environment.PYTHON.bin / 'rf_use_case_checkers', '--user',
            self.bmc.username, '--password', self.bmc.password, '--rhost',
            self.url, '--report-dir', reports, '--test-list', name,
            code=None, timeout=280)
        paths = list(reports.rglob('*.xlsx'))
        self.assertEqual(1, len(paths), output)
        book = openpyxl.load_workbook(paths[0])
        *_, sums = book['Summary'].iter_rows(values_only=True)
        rows = [dict(zip(('area', 'test', 'about', 'what', 'result', 'why'),
                         row)) for row in book['Results'].iter_rows(
                             min_row=2, values_only=True)]
        self.assertEqual([], [row for row in rows
                              if row['result'] not in ('PASS', 'SKIP')])
        passed, *others, skipped = sums
        self.assertEqual([0, 0], others)
        self.assertLessEqual(least, passed, rows)
        untested = {row['why'] for row in rows if row['result'] == 'SKIP'}
        for reason in reasons:
            found = {why for why in untested if re.search(reason, why)}
            self.assertTrue(found, reason)
            untested -= found
        self.assertEqual(set(), untested)
        self.record(name, result=f'{passed} PASS, 0 WARN, 0 FAIL, '
                    f'{skipped} NOT TESTED')

    def test_account_management(self):
        self.check('AccountManagement', 8, 'already enabled by the service',
                   'does not require a password change')

    def test_boot_override(self):
        self.power('On')
        self.check('BootOverride', 11, "'Uefi(Target|BootNext)'")

    def test_power_control(self):
        self.check('PowerControl', 13)

    def test_manager_ethernet_interfaces(self):
        self.check('ManagerEthernetInterfaces', 13, 'does not have a VLAN',
                   "'(NameServers|Static|IPv[46]Static|IPv6DefaultGateway)")

    def test_query_parameters(self):
        self.check('QueryParameters', 19, r'does not support \$filter')
