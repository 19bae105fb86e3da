# SPDX-License-Identifier: Apache-2.0
"""A minimal HTTP server that imitates the Kubernetes API.

It uses real sockets, for tests of connection handling. KubeVirt's behaviour
is tested against the sandbox.
"""

import contextlib
import http.server
import json
import math
import queue
import re
import select
import socket
import struct
import threading
from urllib import parse
import uuid

from sushy_kubevirt.kube import connection

#: Whether the server ends a watch after its timeoutSeconds.
WATCHES_END = True


def vm(name, namespace='default', version='1', uid=None, firmware=None,
       **annotations):
    """Return a VirtualMachine with the fields that the cache reads."""
    return {
        'metadata': {'name': name, 'namespace': namespace,
                     'uid': uid or str(uuid.uuid4()),
                     'resourceVersion': version, 'generation': 1,
                     'annotations': annotations,
                     'managedFields': [{'manager': 'x'}]},
        'spec': {'runStrategy': 'Halted', 'template': {'spec': {
            'domain': {'firmware': {'uuid': firmware or str(uuid.uuid4())},
                       'devices': {}}}}},
    }


def vmi(of, version='1', uid=None):
    """Return a VirtualMachineInstance of a VM."""
    metadata = of['metadata']
    return {
        'metadata': {'name': metadata['name'],
                     'namespace': metadata['namespace'],
                     'uid': uid or str(uuid.uuid4()),
                     'resourceVersion': version,
                     'ownerReferences': [{
                         'kind': 'VirtualMachine', 'controller': True,
                         'name': metadata['name'], 'uid': metadata['uid']}]},
        'spec': {'domain': {'devices': {}}},
        'status': {'phase': 'Running'},
    }


class Api:
    """A server with VMs and VMIs in it. Use as a context manager."""

    def __init__(self):
        self.lock = threading.RLock()
        self.objects = {'virtualmachines': {}, 'virtualmachineinstances': {},
                        'kubevirts': {}}
        self.version = 100
        self.watches = []
        self.requests = []      # (method, path, query, headers, body)
        self.rules = []         # [method, path regex, times, action]
        self.log = []           # of (version, plural, type, object)
        self.oldest = 0
        self.token = None
        #: Whether watches may request the initial objects.
        self.streams = False
        self._server = None
        self.port = 0

    # Starting and stopping

    def start(self):
        api = self

        class Handler(_Handler):
            pass

        Handler.api = api
        self._server = _Server(('127.0.0.1', self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever,
                         kwargs={'poll_interval': 0.01},
                         daemon=True).start()

    def stop(self):
        """End the connections and refuse new ones."""
        self._server.shutdown()
        self._server.server_close()
        self.break_watches()
        self._server.end_connections()

    def break_watches(self):
        """Reset the connections of all watches."""
        with self.lock:
            for each in self.watches:
                each.put(None)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *args):
        self.stop()

    def connection(self, **fields):
        return connection.Connection(lambda: connection.Access(
            server=f'http://127.0.0.1:{self.port}', **fields))

    # Objects

    def put(self, plural, obj, kind=None):
        """Create or change an object."""
        with self.lock:
            self.version += 1
            obj['metadata']['resourceVersion'] = str(self.version)
            key = (obj['metadata']['namespace'], obj['metadata']['name'])
            exists = key in self.objects[plural]
            self.objects[plural][key] = obj
            kind = kind or ('MODIFIED' if exists else 'ADDED')
            self._publish(plural, kind, obj)
        return obj

    def delete(self, plural, obj):
        with self.lock:
            self.version += 1
            key = (obj['metadata']['namespace'], obj['metadata']['name'])
            del self.objects[plural][key]
            obj = json.loads(json.dumps(obj))
            obj['metadata']['resourceVersion'] = str(self.version)
            self._publish(plural, 'DELETED', obj)

    def _publish(self, plural, kind, obj):
        event = (self.version, plural, kind, json.loads(json.dumps(obj)))
        self.log.append(event)
        for each in self.watches:
            each.put(event)

    # Overridden responses

    def rule(self, method, path, action, times=1):
        """Override the response to the next matching requests.

        :param action: 'reset', 'drop-after', 'hang' (until the client or the
            server ends the connection), 'drip' (so, with a byte now and
            then), or (code, body, headers)
        """
        with self.lock:
            self.rules.append([method, re.compile(path), times, action])

    def count(self, method, path=''):
        with self.lock:
            return sum(1 for r in self.requests
                       if r[0] == method and re.search(path, r[1]))

    def watched(self):
        """Tell whether VMs and VMIs are watched."""
        with self.lock:
            return {'virtualmachines', 'virtualmachineinstances'} <= {
                events.plural for events in self.watches}

    def next_action(self, method, path):
        """Return the action of the rule for a request, or None."""
        with self.lock:
            for rule in self.rules:
                if rule[0] == method and rule[1].search(path) and rule[2]:
                    rule[2] -= 1
                    return rule[3]
        return None


class _Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, *args):
        super().__init__(*args)
        self._connections = set()

    def get_request(self):
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def close_request(self, request):
        self._connections.discard(request)
        super().close_request(request)

    def end_connections(self):
        """End those that are kept alive, too."""
        for each in tuple(self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address):
        """Ignore clients that disconnect."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    api = None
    # Buffer writes: a response is sent in one packet, and after a reset the
    # client has received nothing.
    wbufsize = -1

    def log_message(self, *args):
        pass

    def _handle(self):
        url = parse.urlsplit(self.path)
        query = dict(parse.parse_qsl(url.query))
        length = int(self.headers.get('Content-Length') or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        method = self.command
        if query.get('watch'):
            method = 'STREAM' if 'sendInitialEvents' in query else 'WATCH'
        with self.api.lock:
            self.api.requests.append(
                (method, url.path, query, dict(self.headers), body))
        action = self.api.next_action(method, url.path)
        if action in ('hang', 'drip'):
            return self._hang(0.05 if action == 'drip' else None)
        if action == 'reset':
            return self._reset()
        if isinstance(action, tuple):
            return self._respond(*action)
        if self.api.token and self.headers.get(
                'Authorization') != f'Bearer {self.api.token}':
            return self._refuse(401, 'Unauthorized')
        try:
            code, content = self._do(method, url.path, query, body)
        except _Done:
            return None
        if action == 'drop-after':
            return self._reset()
        return self._respond(code, content)

    do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = _handle

    def _hang(self, seconds):
        """Answer nothing until the connection ends.

        :param seconds: time between bytes that are sent; None to send none
        """
        while not select.select([self.connection], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                self.wfile.write(b'H')
                self.wfile.flush()
        self.close_connection = True

    def _do(self, method, path, query, body):
        api = self.api
        parts = [p for p in path.split('/') if p][3:]
        namespace = None
        if parts[0] == 'namespaces':
            namespace, parts = parts[1], parts[2:]
        plural = parts[0]
        if method in ('STREAM', 'WATCH'):
            self._watch(plural, namespace, query)
            raise _Done
        with api.lock:
            objects = api.objects[plural]
            if len(parts) == 1:
                return 200, self._list(objects, namespace, query)
            obj = objects.get((namespace, parts[1]))
            if obj is None:
                return 404, {'message': f'{plural} "{parts[1]}" not found'}
            if method == 'PATCH':
                return self._patch(plural, obj, body)
            if method == 'PUT':
                obj = json.loads(json.dumps(obj))
                obj['metadata']['annotations'][parts[2]] = 'called'
                api.put(plural, obj)
                return 202, None
            return 200, obj

    def _list(self, objects, namespace, query):
        field = query.get('fieldSelector', '').partition('=')[2]
        items = [o for k, o in sorted(objects.items())
                 if namespace in (None, k[0]) and field in ('', k[1])]
        start = int(query.get('continue') or 0)
        end = start + int(query.get('limit') or 1000)
        meta = {'resourceVersion': str(self.api.version)}
        if end < len(items):
            meta['continue'] = str(end)
        return {'metadata': meta, 'items': items[start:end]}

    def _patch(self, plural, obj, body):
        new = json.loads(json.dumps(obj))
        for operation in body:
            parts = [p.replace('~1', '/').replace('~0', '~') for p in
                     operation['path'].split('/')[1:]]
            at = new
            for part in parts[:-1]:
                at = at.setdefault(part, {})
            if operation['op'] == 'test':
                if at.get(parts[-1]) != operation['value']:
                    return 422, {
                        'reason': 'Invalid', 'details': {},
                        'message': 'the server rejected our request due to '
                        'an error in our request'}
            elif operation['op'] == 'remove':
                del at[parts[-1]]
            else:
                at[parts[-1]] = operation['value']
        return 200, self.api.put(plural, new)

    def _watch(self, plural, namespace, query):
        api = self.api
        streams = 'sendInitialEvents' in query
        if streams and not api.streams:
            return self._refuse(422, 'sendInitialEvents is forbidden for '
                                'watch unless the WatchList feature gate is '
                                'enabled')
        version = -1 if streams else int(query['resourceVersion'])
        field = query.get('fieldSelector', '').partition('=')[2]
        events = _Events()
        events.plural = plural
        with api.lock:
            if streams:
                for obj in api.objects[plural].values():
                    events.put((math.inf, plural, 'ADDED', obj))
                events.put((math.inf, plural, 'BOOKMARK', {'metadata': {
                    'name': field, 'namespace': namespace,
                    'resourceVersion': str(api.version), 'annotations': {
                        'k8s.io/initial-events-end': 'true'}}}))
                version = api.version
            elif version < api.oldest:
                return self._respond(200, {
                    'type': 'ERROR', 'object': {
                        'code': 410, 'message': 'too old resource version'}})
            for event in api.log:
                if event[0] > version:
                    events.put(event)
            api.watches.append(events)
        self.send_response(200)
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        self.wfile.flush()
        try:
            while True:
                try:
                    event = events.get(timeout=float(query['timeoutSeconds']))
                except queue.Empty:
                    if not WATCHES_END:
                        continue
                    return self._chunk(b'')
                if event is None:
                    return self._reset()
                _, of, kind, obj = event
                if event[0] > version and of == plural and namespace in (
                        None, obj['metadata']['namespace']) and field in (
                        '', obj['metadata']['name']):
                    line = json.dumps({'type': kind, 'object': obj}) + '\n'
                    self._chunk(line.encode())
        except OSError:
            self.close_connection = True
        finally:
            with api.lock:
                if events in api.watches:
                    api.watches.remove(events)

    def _chunk(self, data):
        self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))
        self.wfile.flush()

    def _refuse(self, code, message):
        self._respond(code, {'message': message, 'code': code})

    def _respond(self, code, body, headers=None):
        data = b'' if body is None else body if isinstance(
            body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _reset(self):
        self.close_connection = True
        self.connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        self.connection.close()


class _Events(queue.Queue):
    """The events of a watch."""

    plural = None


class _Done(Exception):
    """The response has been sent."""
