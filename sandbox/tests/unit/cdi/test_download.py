# SPDX-License-Identifier: Apache-2.0
import socketserver
import threading

from oslotest import base

from kubevirt_sandbox.cdi import download
from kubevirt_sandbox.cdi import download_errors


class DownloadTestCase(base.BaseTestCase):

    def test_connection_lost_during_tls_handshake(self):
        server = socketserver.TCPServer(('127.0.0.1', 0),
                                        socketserver.BaseRequestHandler)
        thread = threading.Thread(target=server.serve_forever,
                                  kwargs={'poll_interval': 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = f'https://127.0.0.1:{server.server_address[1]}/a.iso'
        exc = self.assertRaises(
            download_errors.ImportFailedError,
            download.Download(download.Source(url)).run, 'unused', 1000)
        self.assertTrue(str(exc).endswith(f'Get "{url}": EOF'), str(exc))
