# SPDX-License-Identifier: Apache-2.0
"""Run DMTF's validators and parse their reports.

They need the schemas and Ironic's interoperability profile, which are not
part of this repository; both are read from ``SHARED``.
"""

import csv
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import openpyxl

from kubevirt_sandbox.testing import process
from tests.dmtf import service_validator
from tests.fixtures import checkout

#: Folder with the subfolder ``csdl`` and Ironic's profile; see
#: ``doc/source/reference/conformance.rst``.
SHARED = pathlib.Path(os.environ.get(
    'REDFISH_SCHEMAS', checkout.ROOT.parent / 'shared' / 'redfish'))
SCHEMAS = SHARED / 'csdl'
PROFILE = SHARED / 'OpenStackIronicProfile.v1_2_0.json'

#: Time limit of one run, in seconds.
LIMIT = 280


@dataclasses.dataclass
class Report:
    """The result of one run.

    :param passed, warned, failed, skipped: numbers of checks
    :param findings: list of (``FAIL`` or ``WARN``, text)
    :param output: everything the validator printed
    """

    passed: int
    warned: int
    failed: int
    skipped: int
    findings: list
    output: str

    def of(self, kind):
        """List the texts of the findings of one kind."""
        return [text for found, text in self.findings if found == kind]

    def __str__(self):
        return (
            f'{self.passed} PASS, {self.warned} WARN, {self.failed} FAIL, '
            f'{self.skipped} NOT TESTED')


class Service:
    """The service to validate.

    :param url: its base URL
    :param user: name of an account with all privileges
    :param password: its password
    :param ca: path of the CA certificate; None for HTTP
    """

    def __init__(self, url, user, password, ca=None):
        self.url = url
        self.user = user
        self.password = password
        self.ca = ca


def _run(service, folder, command):
    folder.mkdir(parents=True, exist_ok=True)
    # A CA bundle in the environment overrides the one in their arguments.
    env = process.environment(folder, {
        'NO_PROXY': '*', 'REQUESTS_CA_BUNDLE': service.ca,
        'CURL_CA_BUNDLE': service.ca})
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)
    return done.stdout


def protocol(service, folder):
    """Run ``rf_protocol_validator``.

    :param folder: path for its files
    :returns: `Report`
    :raises AssertionError: it wrote no report; with its output
    """
    config = folder / 'config.ini'
    folder.mkdir(parents=True, exist_ok=True)
    config.write_text(
        f'[Authentication]\nuser = {service.user}\n'
        f'password = {service.password}\n'
        f'[Connection]\nrhost = {service.url}\n')
    trust = (['--ca-bundle', service.ca, '--avoid-http-redirect']
             if service.ca else [])
    output = _run(service, folder, [
        process.BIN / 'rf_protocol_validator', '--config', config,
        '--report-dir', folder / 'report', '--report-type', 'tsv', *trust])
    results = folder / 'report' / 'results.json'
    if not results.exists():
        raise AssertionError('the validator wrote no report:\n'
                             + output[-5000:])
    counts = json.loads(results.read_text())['TestResults'][
        'Protocol Validations']
    findings = []
    for path in (folder / 'report').glob('*.tsv'):
        with open(path, newline='') as stream:
            for row in csv.reader(stream, delimiter='\t'):
                for kind in 'FAIL', 'WARN':
                    if kind in row:
                        findings.append((kind, ' | '.join(row)))
    return Report(counts['pass'], counts['warn'], counts['fail'],
                  counts['skip'], findings, output)


def schema(service, folder, authentication):
    """Run ``rf_service_validator``, see `service_validator`.

    :param authentication: ``Session`` or ``Basic``
    :returns: `Report`
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / 'config.ini'
    config.write_text(
        f'[Authentication]\nuser = {service.user}\n'
        f'password = {service.password}\n')
    output = _run(service, folder, [
        sys.executable, service_validator.__file__, '--config', config,
        '--rhost', service.url, '--authtype', authentication,
        '--skipschema', '--schema_directory', SCHEMAS,
        '--logdir', folder / 'report'])
    path = _report(folder / 'report', service_validator.NAME, output)
    found = json.loads(path.read_text())
    return Report(*found['sums'], [
        (kind, ' | '.join(map(str, cells)))
        for kind, *cells in found['findings']], output)


def interoperability(service, folder, authentication='Session'):
    """Run ``rf_interop_validator`` with Ironic's profile.

    :returns: `Report`
    """
    output = _run(service, folder, [
        process.BIN / 'rf_interop_validator', '--user', service.user,
        # One argument, as the password may begin with a dash.
        '--password=' + service.password, '--rhost', service.url,
        '--authtype', authentication, '--logdir', folder / 'report',
        PROFILE])
    return _of_tables(folder / 'report', output)


def _report(folder, pattern, output):
    """Return the path of a validator's only report."""
    paths = list(folder.rglob(pattern))
    if len(paths) != 1:
        raise AssertionError('the validator wrote no report:\n'
                             + output[-5000:])
    return paths[0]


def _of_tables(folder, output):
    """Parse the report of a validator that writes a workbook.

    Its sheet Summary has the sums, the others have a row for each check.
    """
    book = openpyxl.load_workbook(_report(folder, '*.xlsx', output),
                                  read_only=True)
    sums = {row[0]: row[1] for row in book['Summary'].iter_rows(
        values_only=True) if len(row) > 1}
    findings = [
        (kind, ' | '.join(str(cell) for cell in row[1:] if cell is not None))
        for name in book.sheetnames if name != 'Summary'
        for row in book[name].iter_rows(values_only=True)
        for kind in ('FAIL', 'WARN') if kind in row]
    book.close()
    return Report(sums['Pass'], sums['Warning'], sums['Fail'],
                  sums['Not Tested'], findings, output)
