# SPDX-License-Identifier: Apache-2.0
"""Add the packages of npm to a CycloneDX list.

::

    python3 images/web-modules/list_packages.py sbom.cdx.json
"""

import json
import pathlib
import sys
import urllib.parse

LOCK = pathlib.Path(__file__).parent / 'package-lock.json'


def components():
    """Yield the component of each package of the lock file."""
    for path, one in json.loads(LOCK.read_text())['packages'].items():
        name = path.removeprefix('node_modules/')
        if name:
            group, _, short = name.rpartition('/')
            url = f'pkg:npm/{urllib.parse.quote(name)}@{one["version"]}'
            yield {'bom-ref': url, 'type': 'library', 'group': group,
                   'name': short, 'version': one['version'], 'purl': url,
                   'licenses': [{'license': {'id': one['license']}}]}


def main(path):
    path = pathlib.Path(path)
    bill = json.loads(path.read_text())
    bill['components'] += components()
    path.write_text(json.dumps(bill, indent=2) + '\n')


if __name__ == '__main__':
    main(sys.argv[1])
