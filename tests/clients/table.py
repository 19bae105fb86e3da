# SPDX-License-Identifier: Apache-2.0
"""Compare the table of tested clients with what the tests have shown.

    python -m tests.clients.table [--complete | --write]

Run it after the tests of this folder. Without ``--write`` it fails if the rows
of a client that was tested differ from ``doc/source/reference/clients.csv``;
with it, it replaces them. Rows of clients that were not tested are left alone.
With ``--complete`` it fails if a client was not tested with all of its tests,
unless this host lacks what they need: Go, or an interface besides loopback.
"""

import argparse
import csv
import difflib
import io
import json
import sys

from tests.clients import environment
from tests.fixtures import checkout

TABLE = checkout.ROOT / 'doc/source/reference/clients.csv'

#: Clients that need Go.
GO = ('bmclib', 'gofish')

_HEAD = ('Client', 'Version', 'Commands or functions', 'Result')


def read(text):
    """Parse the table.

    :param text: the CSV file
    :returns: dict from client to the list of its rows
    """
    found = {}
    for row in list(csv.reader(io.StringIO(text)))[1:]:
        found.setdefault(row[0], []).append(row)
    return found


def write(clients):
    """Generate the CSV file from what `read` returns."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator='\n')
    writer.writerow(_HEAD)
    for name in sorted(clients, key=str.lower):
        writer.writerows(clients[name])
    return stream.getvalue()


def tested(reports):
    """Make the rows of the clients that were tested.

    Functions with the same result share a row.

    :param reports: iterable of dicts with ``client``, ``version`` and
        ``rows``, a dict from function to result
    :returns: as `read`
    """
    found = {}
    for report in reports:
        functions = {}
        for name, result in sorted(report['rows'].items()):
            functions.setdefault(result, []).append(f'``{name}``')
        found[report['client']] = [
            [report['client'], report['version'], ', '.join(names), result]
            for result, names in functions.items()]
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(prog='python -m tests.clients.table',
                                     description='Check or update '
                                     f'{TABLE.relative_to(checkout.ROOT)}.')
    parser.add_argument('--write', action='store_true',
                        help='replace the rows of the tested clients')
    parser.add_argument('--complete', action='store_true',
                        help='fail if a client was not tested')
    options = parser.parse_args(argv)
    old = TABLE.read_text() if TABLE.exists() else ''
    reports = [json.loads(path.read_text())
               for path in sorted(environment.RESULTS.glob('*.json'))]
    skipped = dict.fromkeys(GO, environment.without_go()) | {
        one['client']: one.get('skipped') for one in reports}
    shown = tested(one for one in reports if not skipped[one['client']])
    new = write(read(old) | shown)
    print('tested: ' + (', '.join(shown) or 'nothing'))
    for name, reason in skipped.items():
        if reason:
            print(f'{name} was skipped: {reason}')
    missing = [name for name in read(old)
               if name not in shown and not skipped.get(name)]
    if options.write:
        TABLE.write_text(new)
    elif options.complete and missing:
        print('Not all tests of these clients were run: '
              + ', '.join(missing))
        return 1
    elif new != old:
        sys.stdout.writelines(difflib.unified_diff(
            old.splitlines(True), new.splitlines(True), str(TABLE),
            'what the tests have shown'))
        print('If this is as it should be, run: '
              'python -m tests.clients.table --write')
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
