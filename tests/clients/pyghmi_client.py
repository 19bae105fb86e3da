# SPDX-License-Identifier: Apache-2.0
"""Use a BMC through pyghmi's client; runs in the clients' environment.

    python pyghmi_client.py HOST METHOD [ARGUMENTS]

METHOD is one of `pyghmi.ipmi.command.Command`, ARGUMENTS a JSON object. The
result is printed as JSON. With METHOD ``console``, the terminal is connected
to the serial console until Control-D is typed. The user is ``admin``, its
password is in the environment variable ``IPMI_PASSWORD``.
"""

import json
import os
import select
import sys
import types

from pyghmi.ipmi import command
from pyghmi.ipmi import console


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


def connect(host):
    """Connect the terminal to the serial console, as ``pyghmicons`` does."""
    def show(data):
        # A dictionary is information or an error.
        os.write(1, data if isinstance(data, bytes)
                 else repr(data).encode())

    session = console.Console(bmc=host, userid='admin',
                              password=os.environ['IPMI_PASSWORD'],
                              iohandler=show)
    while not session.connected:
        session.wait_for_rsp(1)
    os.write(1, b'connected')
    while not session.broken:
        session.wait_for_rsp(0.05)
        if select.select([0], [], [], 0)[0]:
            data = os.read(0, 1024)
            if b'\x04' in data:
                break
            session.send_data(data)
    session.close()


def main(host, method, arguments='{}'):
    if method == 'console':
        connect(host)
        return
    connection = command.Command(
        bmc=host, userid='admin', password=os.environ['IPMI_PASSWORD'],
        keepalive=False)
    result = getattr(connection, method)(**json.loads(arguments))
    print(json.dumps(plain(result)))
    connection.ipmi_session.logout()


if __name__ == '__main__':
    main(*sys.argv[1:])
