# SPDX-License-Identifier: Apache-2.0
"""A web server with images, for virtual media."""

import base64
import re

import fixtures

from kubevirt_sandbox.testing import webserver


class ImageServer(fixtures.Fixture):
    """Serves every path that ends in ``.iso``; all else is missing.

    ``/private/`` asks for user ``me`` and password ``pa55-w0rd``. ``size`` in
    the name of an image, as in ``size-1000000.iso``, says how large it is;
    else it has 4096 bytes. What is not there while `missing` matches its
    path is a 404.

    :param address: to listen on.
    """

    USER, PASSWORD = 'me', 'pa55-w0rd'

    def __init__(self, address='127.0.0.1'):
        super().__init__()
        self._address = address

    def _setUp(self):
        self.requests = []          # (method, path)
        self.missing = None         # regular expression
        fixture = self
        secret = 'Basic ' + base64.b64encode(
            f'{self.USER}:{self.PASSWORD}'.encode()).decode()

        class Handler(webserver.Handler):

            def do_GET(self):
                fixture.requests.append((self.command, self.path))
                code, size = 200, 4096
                if not self.path.endswith('.iso') or fixture.missing and (
                        re.search(fixture.missing, self.path)):
                    code, size = 404, 0
                elif self.path.startswith('/private/') and self.headers.get(
                        'Authorization') != secret:
                    code, size = 401, 0
                else:
                    found = re.search(r'size-(\d+)', self.path)
                    size = int(found[1]) if found else size
                self.send_response(code)
                self.send_header('Content-Length', str(size))
                self.end_headers()
                if self.command == 'GET':
                    piece = b'\0' * 65536
                    while size:
                        self.wfile.write(piece[:size])
                        size -= len(piece[:size])

            do_HEAD = do_GET

        self.url = self.useFixture(webserver.WebServer(
            Handler, address=self._address)).url
