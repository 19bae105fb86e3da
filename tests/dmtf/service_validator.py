# SPDX-License-Identifier: Apache-2.0
"""Run ``rf_service_validator`` with a report in JSON.

The validator writes a workbook, for which it takes four times as long as for
the validation itself. Everything else is left as it is. The arguments are the
validator's.
"""

import json
import sys

from redfish_service_validator import console_scripts
from redfish_service_validator import report

#: Name of the report in the validator's folder of reports.
NAME = 'report.json'


def write(service, folder, *_args):
    """Write sums and findings, in place of ``report.xlsx_report``.

    A finding is a list: result, URI, resource type, property, value, message.

    :param service: the validator's ``SystemUnderTest``
    :param folder: `pathlib.Path` of this run's reports
    :returns: path of the report
    """
    findings = []
    for uri, resource in service._resources.items():
        response = getattr(resource['Response'], 'dict', None) or {}
        kind = response.get('@odata.type', '').lstrip('#').split('.')[0]
        findings += [
            [one['Result'], uri, kind, name.lstrip('/'), one['Value'],
             one['Message']]
            for name, one in resource['Results'].items()
            if one['Result'] in ('FAIL', 'WARN')]
    path = folder / NAME
    path.write_text(json.dumps({
        'sums': [service.pass_count, service.warn_count, service.fail_count,
                 service.skip_count], 'findings': findings}))
    return path


if __name__ == '__main__':
    report.xlsx_report = write
    sys.exit(console_scripts.main())
