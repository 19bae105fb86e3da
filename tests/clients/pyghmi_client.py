# SPDX-License-Identifier: Apache-2.0
"""Use a BMC through pyghmi's client; runs in the clients' environment.

    python pyghmi_client.py HOST METHOD [ARGUMENTS]

METHOD is one of `pyghmi.ipmi.command.Command`, ARGUMENTS a JSON object. The
result is printed as JSON. The user is ``admin``, its password is in the
environment variable ``IPMI_PASSWORD``.
"""

import json
import os
import sys
import types

from pyghmi.ipmi import command


def plain(value):
    """Convert a result of pyghmi to what JSON can express."""
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, types.GeneratorType)):
        return [plain(one) for one in value]
    if hasattr(value, '__dict__'):
        return plain(vars(value))
    if isinstance(value, (bytes, bytearray)):
        return value.decode('latin-1')
    return value if isinstance(value, (int, float, type(None))) else str(value)


def main(host, method, arguments='{}'):
    connection = command.Command(
        bmc=host, userid='admin', password=os.environ['IPMI_PASSWORD'],
        keepalive=False)
    result = getattr(connection, method)(**json.loads(arguments))
    print(json.dumps(plain(result)))
    connection.ipmi_session.logout()


if __name__ == '__main__':
    main(*sys.argv[1:])
