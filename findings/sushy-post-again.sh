#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sushy 5.14.0 sends a POST again when the connection ends without an answer.
#
# An action such as PowerCycle is not idempotent, so HTTP clients usually do
# not repeat a POST that the server may have carried out (RFC 9110, section
# 9.2.2). sushy documents server_side_retries as the number of times to retry
# GET requests, and says nothing of others; with 0 one expects no retry at all.
#
# Behaviour: a connection that breaks or times out is retried for every
# method. server_side_retries is the number of attempts, 10 by default, and 0
# means 3 (sushy/connector.py, Connector._op). A BMC that carries out a reset
# and restarts its web server, or is slow to answer, is asked again.
#
# Seen:
#   POST {"ResetType": "PowerCycle"} carried out, connection closed
#   POST {"ResetType": "PowerCycle"} carried out, connection closed
#   POST {"ResetType": "PowerCycle"} carried out, answered 204
#   reset_system() raised nothing; the machine was power cycled 3 times

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps \
    certifi==2026.10.19.post1 charset-normalizer==3.5.3 idna==3.20 \
    pbr==7.1.3 python-dateutil==4.0.0 requests==2.34.2 stevedore==5.10.0 \
    sushy==5.14.0 urllib3==2.8.0
timeout 60 venv/bin/python - <<'EOF'
import http.server
import json
import threading

import sushy
from sushy import auth

SYSTEM = '/redfish/v1/Systems/1'
RESET = f'{SYSTEM}/Actions/ComputerSystem.Reset'
RESOURCES = {
    '/redfish/v1/': {
        '@odata.id': '/redfish/v1/', 'Id': 'RootService', 'Name': 'Root',
        'RedfishVersion': '1.15.0',
        'Systems': {'@odata.id': '/redfish/v1/Systems'}},
    SYSTEM: {
        '@odata.id': SYSTEM, 'Id': '1', 'Name': 'one', 'PowerState': 'On',
        'Actions': {'#ComputerSystem.Reset': {
            'target': RESET,
            'ResetType@Redfish.AllowableValues': ['PowerCycle']}}},
}
resets = []


class Service(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        body = json.dumps(RESOURCES[self.path]).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length'])).decode()
        resets.append((self.path, body))
        answered = len(resets) == 3
        print(f'POST {body} carried out,',
              'answered 204' if answered else 'connection closed')
        if answered:
            self.send_response(204)
            self.end_headers()

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()
root = sushy.Sushy(f'http://127.0.0.1:{server.server_port}',
                   auth=auth.BasicAuth('admin', 'password'),
                   server_side_retries=0)
root.get_system(SYSTEM).reset_system(sushy.ResetType.POWER_CYCLE)
print('reset_system() raised nothing; the machine was power cycled',
      len(resets), 'times')
assert resets == [(RESET, '{"ResetType": "PowerCycle"}')] * 3
EOF
