#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sushy 5.14.0 knows only the first page of a Redfish collection.
#
# A service may send a large collection in pages. Each page but the last has a
# Members@odata.nextLink, which a client must follow (DSP0266, "Resource
# collections"). The library of Ironic is expected to follow it, or at least
# to say that Members has fewer entries than Members@odata.count.
#
# Behaviour: the link is never requested and nothing is logged. The systems
# of later pages do not exist for its users. No module of sushy mentions
# nextLink; the collection takes its identities from Members alone
# (sushy/resources/base.py, ResourceCollectionBase).
#
# Seen:
#   Members@odata.count: 3
#   sushy lists: /redfish/v1/Systems/1 /redfish/v1/Systems/2
#   requests: /redfish/v1/ /redfish/v1/Systems

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

SYSTEMS = '/redfish/v1/Systems'
MEMBERS = [{'@odata.id': f'{SYSTEMS}/{number}'} for number in (1, 2, 3)]
PAGE = {'@odata.id': SYSTEMS, 'Name': 'Systems', 'Members@odata.count': 3}
RESOURCES = {
    '/redfish/v1/': {
        '@odata.id': '/redfish/v1/', 'Id': 'RootService', 'Name': 'Root',
        'RedfishVersion': '1.15.0', 'Systems': {'@odata.id': SYSTEMS}},
    SYSTEMS: {**PAGE, 'Members': MEMBERS[:2],
              'Members@odata.nextLink': f'{SYSTEMS}?$skip=2'},
    f'{SYSTEMS}?$skip=2': {**PAGE, 'Members': MEMBERS[2:]},
}
requests = []


class Service(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        requests.append(self.path)
        body = json.dumps(RESOURCES[self.path]).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()
root = sushy.Sushy(f'http://127.0.0.1:{server.server_port}',
                   auth=auth.BasicAuth('admin', 'password'))
systems = root.get_system_collection().members_identities
print('Members@odata.count:', PAGE['Members@odata.count'])
print('sushy lists:', *systems)
print('requests:', *requests)
assert systems == tuple(each['@odata.id'] for each in MEMBERS[:2])
assert requests == ['/redfish/v1/', SYSTEMS]
EOF
