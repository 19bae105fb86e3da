# SPDX-License-Identifier: Apache-2.0
"""Fixture that reads a VM's serial port through KubeVirt's ``console``.

The Kubernetes client library opens the WebSocket, so tests see the same bytes
as a user of ``virtctl console``.
"""

import re
import threading
import time

import fixtures
from kubernetes import client
from kubernetes import config
from kubernetes.stream import ws_client
import websocket

PROTOCOL = 'plain.kubevirt.io'


def url(sandbox, name, verb='console', namespace='default'):
    """Return the WebSocket URL of a VMI subresource.

    :param sandbox: the running sandbox.
    :param name: name of the VMI.
    :param verb: ``console`` or ``vnc``.
    :param namespace: namespace of the VMI.
    """
    return ('wss' + sandbox.url.removeprefix('https')
            + f'/apis/subresources.kubevirt.io/v1/namespaces/{namespace}'
            f'/virtualmachineinstances/{name}/{verb}')


def connect(sandbox, where):
    """Open a WebSocket with the Kubernetes client library.

    :param sandbox: the running sandbox.
    :param where: URL from :func:`url`.
    :returns: ``websocket.WebSocket``
    :raises websocket.WebSocketBadStatusException: the server refused the
        connection.
    """
    settings = client.Configuration()
    config.load_kube_config(str(sandbox.kubeconfig),
                            client_configuration=settings)
    return ws_client.create_websocket(settings, where, {
        'authorization': settings.auth_settings()['BearerToken']['value'],
        'sec-websocket-protocol': PROTOCOL})


class Console(fixtures.Fixture):
    """The console of one VM, across all its VMIs.

    A thread connects as soon as a VMI runs, reads until the VMI ends, and
    then waits for the next VMI.

    :param sandbox: the running sandbox.
    :param name: name of the VM.
    :param namespace: namespace of the VM.
    """

    def __init__(self, sandbox, name, namespace='default'):
        super().__init__()
        self._sandbox = sandbox
        self._name = name
        self._namespace = namespace
        self._changed = threading.Condition()
        self._output = ''
        self._socket = None
        self._ended = False

    def _setUp(self):
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        self.addCleanup(self._end)

    def _end(self):
        self._ended = True
        socket = self._socket
        if socket is not None:
            socket.shutdown()
        self._thread.join(10)

    def _follow(self):
        uid = None
        while not self._ended:
            try:
                vmi = self._sandbox.wait_running(
                    self._name, self._namespace, uid, timeout=5)
                socket = connect(self._sandbox, url(
                    self._sandbox, self._name, namespace=self._namespace))
            except (AssertionError, OSError):
                continue  # the VMI does not run yet
            except websocket.WebSocketBadStatusException as exc:
                if exc.status_code not in (400, 404):
                    raise
                continue  # the VMI has stopped in the meantime
            uid = vmi['metadata']['uid']
            with self._changed:
                self._socket = socket
                self._changed.notify_all()
            try:
                while not self._ended:
                    opcode, data = socket.recv_data()
                    if opcode == websocket.ABNF.OPCODE_CLOSE:
                        break
                    with self._changed:
                        self._output += data.decode(errors='replace')
                        self._changed.notify_all()
            except (OSError, websocket.WebSocketException):
                pass  # the server closes it when the VMI ends
            with self._changed:
                self._socket = None
                self._changed.notify_all()

    @property
    def output(self):
        """Return all text read so far."""
        return self._output

    def mark(self):
        """Return the current position, for :meth:`wait`."""
        return len(self._output)

    def wait(self, pattern, mark=0, timeout=120):
        """Wait until the output of the VM matches a pattern.

        :param pattern: regular expression.
        :param mark: position to search from, see :meth:`mark`.
        :param timeout: seconds.
        :returns: the match.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not (found := re.search(pattern, self._output[mark:])):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(
                        f'{self._name} did not print {pattern!r} in '
                        f'{timeout:g} s: {self._output[mark:][-3000:]}')
                self._changed.wait(left)
        return found

    def send_line(self, text, timeout=30):
        """Type a line of text.

        :param text: the line, without its line end.
        :param timeout: seconds to wait for a connection.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._socket is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f'{self._name} has no console')
                self._changed.wait(left)
            socket = self._socket
        socket.send_binary(text.encode() + b'\n')
