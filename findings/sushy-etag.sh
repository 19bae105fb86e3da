#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sushy 5.14.0 answers "412 Precondition Failed" by dropping the precondition.
#
# sushy reads a resource and sends its ETag as If-Match of a PATCH. 412 then
# says that somebody else changed the resource in between. One expects an
# exception, so that the caller can read the new state and decide.
#
# Behaviour: the same PATCH is sent up to twice more: with a weak ETag turned
# into a strong one (only if it consists of letters, digits and underscores),
# then without If-Match, which overwrites the other change. The caller gets a
# success. The reason are BMCs that refuse their own ETags
# (sushy/connector.py, Connector._etag_handler). So a service cannot protect
# its users from lost updates by ETags alone.
#
# Seen:
#   GET -> ETag W/"1", then another client's PATCH makes it W/"2"
#   PATCH If-Match: W/"1" -> 412
#   PATCH If-Match: "1" -> 412
#   PATCH If-Match: None -> 204
#   set_system_boot_options() raised nothing

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
RESOURCES = {
    '/redfish/v1/': {
        '@odata.id': '/redfish/v1/', 'Id': 'RootService', 'Name': 'Root',
        'RedfishVersion': '1.15.0',
        'Systems': {'@odata.id': '/redfish/v1/Systems'}},
    SYSTEM: {
        '@odata.id': SYSTEM, 'Id': '1', 'Name': 'one', 'PowerState': 'Off',
        'Boot': {
            'BootSourceOverrideEnabled': 'Disabled',
            'BootSourceOverrideMode': 'UEFI',
            'BootSourceOverrideTarget': 'None',
            'BootSourceOverrideTarget@Redfish.AllowableValues':
                ['None', 'Pxe', 'Hdd']}},
}
etag = 'W/"1"'
racing = False
patches = []


class Service(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        global etag
        read = etag
        if racing:
            etag = 'W/"2"'
            print(f"GET -> ETag {read}, then another client's PATCH makes it",
                  etag)
        self.answer(200, RESOURCES[self.path], read)

    def do_PATCH(self):
        self.rfile.read(int(self.headers['Content-Length']))
        match = self.headers['If-Match']
        status = 204 if match in (None, etag) else 412
        patches.append((match, status))
        print(f'PATCH If-Match: {match} -> {status}')
        self.answer(status, None if status == 204 else {'error': {
            'code': 'Base.1.15.PreconditionFailed', 'message': 'Changed.'}}, etag)

    def answer(self, status, body, tag):
        data = b'' if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header('ETag', tag)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()
root = sushy.Sushy(f'http://127.0.0.1:{server.server_port}',
                   auth=auth.BasicAuth('admin', 'password'))
system = root.get_system(SYSTEM)
racing = True
system.set_system_boot_options(target=sushy.BootSource.PXE,
                               enabled=sushy.BootSourceOverrideEnabled.ONCE)
print('set_system_boot_options() raised nothing')
assert patches == [('W/"1"', 412), ('"1"', 412), (None, 204)]
EOF
