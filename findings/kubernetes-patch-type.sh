#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The Python client 37.0.2 sends a JSON patch as such only to built-in resources.
#
# The media type of a patch decides what it means. The client infers it from the
# body: for patch_namespaced_pod() a dict is a strategic merge patch and a list
# is a JSON patch. One expects the same of patch_namespaced_custom_object(),
# the only method for a resource such as KubeVirt's VirtualMachine.
#
# Behaviour: the list goes out as application/merge-patch+json, for which an
# array is no valid document, so that an API server refuses it. The caller has to
# give _content_type='application/json-patch+json'
# (kubernetes/client/api/custom_objects_api.py).
#
# Seen:
#   Pod, dict: application/strategic-merge-patch+json
#   Pod, list: application/json-patch+json
#   VirtualMachine, dict: application/merge-patch+json
#   VirtualMachine, list: application/merge-patch+json
#   VirtualMachine, list, _content_type: application/json-patch+json

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
import threading

from kubernetes import client


class Api(http.server.BaseHTTPRequestHandler):

    def do_PATCH(self):
        types.append(self.headers['Content-Type'])
        self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'{}')

    def log_message(self, *args):
        pass


types = []
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Api)
threading.Thread(target=server.serve_forever, daemon=True).start()
api = client.ApiClient(client.Configuration(
    host=f'http://127.0.0.1:{server.server_port}'))


def pod(body):
    client.CoreV1Api(api).patch_namespaced_pod('vm', 'default', body)
    return types[-1]


def machine(body, **options):
    client.CustomObjectsApi(api).patch_namespaced_custom_object(
        'kubevirt.io', 'v1', 'default', 'virtualmachines', 'vm', body,
        **options)
    return types[-1]


merge = {'metadata': {'labels': {'a': 'b'}}}
patch = [{'op': 'add', 'path': '/metadata/labels/a', 'value': 'b'}]
json_patch = 'application/json-patch+json'
print('Pod, dict:', pod(merge))
print('Pod, list:', pod(patch))
print('VirtualMachine, dict:', machine(merge))
print('VirtualMachine, list:', machine(patch))
print('VirtualMachine, list, _content_type:',
      machine(patch, _content_type=json_patch))
assert types == ['application/strategic-merge-patch+json', json_patch,
                 'application/merge-patch+json',
                 'application/merge-patch+json', json_patch]
EOF
