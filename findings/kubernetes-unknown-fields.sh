#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Read and replace with the Python client 37.0.2 deletes what it does not know.
#
# A program that reads an object, changes one field and replaces the object is
# expected to leave the rest as it is. The API server adds fields with each
# minor version, and the resourceVersion protects such an update only from
# other writers.
#
# Behaviour: read_*() keeps the fields that the models of the client's version
# have, without an error or a warning. replace_*() sends these alone, so a
# field that is newer than the client, or that a controller has set by another
# version, is removed from the object (kubernetes/client/models). A patch, or
# CustomObjectsApi and its dicts, do not have this effect.
#
# Seen:
#   read: spec has containers, futurePolicy
#   sent: spec has containers
#   CustomObjectsApi sent: spec has containers, futurePolicy

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps annotated-types==0.8.0 certifi==2026.10.19.post1 \
    charset-normalizer==3.5.3 durationpy==0.11 idna==3.20 kubernetes==37.0.2 \
    oauthlib==4.0.1 pydantic==2.14.4 pydantic_core==2.50.5 \
    python-dateutil==4.0.0 PyYAML==6.0.4 requests==2.34.2 \
    requests-oauthlib==2.0.0 typing-inspection==0.4.5 \
    typing_extensions==4.16.0 urllib3==2.8.0 websocket-client==1.9.2
timeout 120 venv/bin/python - <<'EOF'
import http.server
import json
import threading

from kubernetes import client

POD = {'apiVersion': 'v1', 'kind': 'Pod',
       'metadata': {'name': 'vm', 'resourceVersion': '7'},
       'spec': {'containers': [{'name': 'compute', 'image': 'launcher'}],
                'futurePolicy': 'Keep'}}


class Api(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        body = json.dumps(POD).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        sent.append(json.loads(
            self.rfile.read(int(self.headers['Content-Length']))))
        self.do_GET()

    def log_message(self, *args):
        pass


sent = []
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Api)
threading.Thread(target=server.serve_forever, daemon=True).start()
api = client.ApiClient(client.Configuration(
    host=f'http://127.0.0.1:{server.server_port}'))
typed, custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
print('read: spec has', ', '.join(sorted(POD['spec'])))
pod = typed.read_namespaced_pod('vm', 'default')
typed.replace_namespaced_pod('vm', 'default', pod)
print('sent: spec has', ', '.join(sorted(sent[0]['spec'])))
path = ('example.org', 'v1', 'default', 'pods', 'vm')
pod = custom.get_namespaced_custom_object(*path)
custom.replace_namespaced_custom_object(*path, pod)
print('CustomObjectsApi sent: spec has', ', '.join(sorted(sent[1]['spec'])))
assert list(sent[0]['spec']) == ['containers']
assert sent[1] == POD
EOF
