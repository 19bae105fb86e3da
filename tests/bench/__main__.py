# SPDX-License-Identifier: Apache-2.0
"""The command ``tools/bench``."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import sys

from tests.bench import plan
from tests.bench import report

PACKAGES = ('sushy-kubevirt', 'sushy-tools', 'virtualbmc', 'pyghmi',
            'gunicorn', 'libvirt-python')


def main():
    parser = argparse.ArgumentParser(
        prog='tools/bench',
        description='Measure the emulators of this project beside the stock '
        'ones, interleaved, on this machine, an emulator of thousands of VMs, '
        'the operator with its BMCs, and '
        'clusters of virtual bare metal. Takes ten to twenty minutes; prints '
        'a table, and JSON on request.')
    parser.add_argument('--json', metavar='FILE',
                        help='write the figures there; - is standard output, '
                        'with the table on standard error')
    parser.add_argument('--quick', action='store_true',
                        help='check that the benchmark works: few requests, '
                        'meaningless figures')
    parser.add_argument('--only', choices=(*report.NAMES, *plan.OTHERS),
                        help='measure one side alone, or an emulator of '
                        'thousands of VMs (scale), or the operator, or '
                        'clusters of virtual bare metal')
    options = parser.parse_args()

    def say(what):
        print(f'bench: {what}', file=sys.stderr, flush=True)

    result = {
        'date': datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec='seconds'),
        'quick': options.quick,
        'python': platform.python_version(),
        'machine': f'{platform.machine()}, {os.cpu_count()} processors',
        'packages': {name: importlib.metadata.version(name)
                     for name in PACKAGES},
        **plan.run(plan.QUICK if options.quick else plan.FULL, options.only,
                   say),
    }
    text = json.dumps(result, indent=2)
    if options.json == '-':
        print(text)
    elif options.json:
        with open(options.json, 'w') as stream:
            stream.write(text + '\n')
    print(report.table(result),
          file=sys.stderr if options.json == '-' else sys.stdout)


if __name__ == '__main__':
    main()
