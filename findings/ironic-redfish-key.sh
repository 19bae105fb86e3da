#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Ironic 39.0.0 derives a key from the password for each use of a Redfish BMC.
#
# Ironic keeps sessions of BMCs in a cache. One expects that a lookup in it costs
# next to nothing, so that a conductor's load is that of HTTP requests.
#
# Behaviour: the key of the cache contains a hash of the password, 600,000 rounds
# of PBKDF2 with SHA-512, and is made anew for each lookup, before the cache is
# asked (ironic/drivers/modules/redfish/utils.py, SessionCache). That is 0.2 to
# 0.5 s of CPU time for every power state that is read, for example by the
# periodic synchronization: a core is busy with a few hundred nodes in a minute,
# however fast their BMCs are.
#
# Seen:
#   read 1: Off; keys derived: 1, the last with 600000 rounds of sha512
#   read 2: Off; keys derived: 2, the last with 600000 rounds of sha512
#   read 3: Off; keys derived: 3, the last with 600000 rounds of sha512

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps \
    alembic==1.20.1 amqp==5.4.2 attrs==26.1.0 automaton==3.5.0 bcrypt==5.0.0 \
    cachetools==8.0.2 certifi==2026.10.19.post1 cffi==2.1.1 \
    charset-normalizer==3.5.3 cheroot==11.1.2 construct==2.10.70 \
    cotyledon==2.2.0 cryptography==50.0.2 debtcollector==3.1.0 \
    decorator==5.3.1 dnspython==2.9.2 dogpile-cache==1.5.0 eventlet==0.41.3 \
    fasteners==0.20 futurist==3.5.0 greenlet==3.5.6 idna==3.20 ifaddr==0.2.0 \
    ironic==39.0.0 iso8601==2.1.0 jaraco-functools==4.6.0 jinja2==3.1.6 \
    jmespath==1.1.0 jsonpatch==1.48 jsonpointer==3.12 jsonschema==4.26.0 \
    jsonschema-specifications==2025.9.1 jwcrypto==1.6.1 keystoneauth1==5.18.1 \
    keystonemiddleware==13.0.1 kombu==5.7.0 lark==1.3.1 mako==1.4.3 \
    markupsafe==3.0.4 microversion-parse==2.1.0 more-itertools==11.2.1 \
    msgpack==1.2.4 netaddr==1.3.0 openstacksdk==4.22.0 os-service-types==1.9.0 \
    os-traits==3.9.0 oslo-cache==4.3.0 oslo-concurrency==7.6.1 \
    oslo-config==10.7.0 oslo-context==6.5.0 oslo-db==18.1.1 oslo-i18n==6.9.0 \
    oslo-log==8.3.2 oslo-messaging==18.3.1 oslo-metrics==0.17.0 \
    oslo-middleware==8.2.0 oslo-policy==6.0.1 oslo-serialization==5.11.0 \
    oslo-service==4.8.0 oslo-upgradecheck==2.8.0 oslo-utils==10.2.0 \
    oslo-versionedobjects==3.12.0 osprofiler==4.4.0 packaging==26.4 \
    paste==3.10.1 pastedeploy==3.1.0 pbr==7.1.3 pecan==1.8.0 \
    platformdirs==4.14.8 prettytable==3.18.0 prometheus-client==0.26.0 \
    psutil==7.2.2 pycadf==4.1.0 pycdlib==1.22.0 pycparser==3.12 pyjwt==2.15.1 \
    pyparsing==3.3.3 python-dateutil==4.0.0 python-keystoneclient==6.0.0 \
    pyyaml==6.0.4 redis==8.1.0 referencing==0.37.0 repoze-lru==0.8 \
    requests==2.34.2 rfc3986==2.0.0 routes==2.5.1 rpds-py==2026.9.1 \
    setproctitle==1.3.8 setuptools==84.2.1 six==1.17.0 sqlalchemy==2.1.9 \
    statsd==4.0.1 stevedore==5.10.0 sushy==5.14.0 tenacity==9.2.1 tooz==9.1.0 \
    typing-extensions==4.16.0 tzdata==2026.6 urllib3==2.8.0 vine==5.1.0 \
    voluptuous==0.16.0 wcwidth==0.9.4 webob==1.8.11 wrapt==2.5.2 yappi==1.7.6 \
    zeroconf==0.154.0
timeout 120 venv/bin/python -W ignore - <<'EOF'
import hashlib
import http.server
import json
import threading
import types

from ironic.drivers.modules.redfish import utils

SYSTEM = '/redfish/v1/Systems/1'
RESOURCES = {
    '/redfish/v1/': {
        '@odata.id': '/redfish/v1/', 'Id': 'RootService', 'Name': 'Root',
        'RedfishVersion': '1.15.0',
        'Systems': {'@odata.id': '/redfish/v1/Systems'}},
    SYSTEM: {'@odata.id': SYSTEM, 'Id': '1', 'Name': 'one',
             'PowerState': 'Off'}}


class Service(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        data = json.dumps(RESOURCES[self.path]).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()
node = types.SimpleNamespace(
    uuid='6c4c6c29-6c9e-4a63-8f3a-1d1b1c3f4a10', driver='redfish',
    driver_info={
        'redfish_address': f'http://127.0.0.1:{server.server_port}',
        'redfish_system_id': SYSTEM, 'redfish_username': 'admin',
        'redfish_password': 'password', 'redfish_auth_type': 'basic'})
derive = hashlib.pbkdf2_hmac
calls = []


def counted(*args):
    calls.append(args)
    return derive(*args)


hashlib.pbkdf2_hmac = counted
for number in range(1, 4):
    state = utils.get_system(node).power_state.value
    print(f'read {number}: {state}; keys derived: {len(calls)}, the last with '
          f'{calls[-1][3]} rounds of {calls[-1][0]}')
assert len(calls) == 3 and len(set(calls)) == 1
assert calls[0][3] == 600000
EOF
