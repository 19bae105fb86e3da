#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# sushy-emulator 2.2.0 accepts a one-time boot and makes it a permanent one.
#
# The emulator is what Redfish clients are tested with. A PATCH with
# BootSourceOverrideEnabled "Once" is answered 204, so one expects that the
# system says Once, boots from the device one time, and says Disabled again.
#
# Behaviour: the handler of the PATCH takes target and mode and drops
# BootSourceOverrideEnabled (sushy_tools/emulator/main.py); the template of a
# system always answers Continuous (templates/system.json). A client that
# compares what it has set finds a difference, and a test that passes with the
# emulator proves nothing about one-time boots. "Disabled" alone is answered 400.
#
# Seen:
#   PATCH Pxe, Once -> 204; GET: Pxe, Continuous
#   power on -> 204; GET: Pxe, Continuous
#   PATCH Disabled -> 400; GET: Pxe, Continuous

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps \
    bcrypt==5.0.0 blinker==1.9.0 certifi==2026.10.19.post1 \
    charset-normalizer==3.5.3 click==8.5.1 Flask==3.1.3 idna==3.20 \
    itsdangerous==2.2.0 Jinja2==3.1.6 MarkupSafe==3.0.4 pbr==7.1.3 \
    requests==2.34.2 sushy-tools==2.2.0 tenacity==9.2.1 urllib3==2.8.0 \
    WebOb==1.8.11 Werkzeug==3.1.9
export SUSHY_EMULATOR_CONFIG=$folder/emulator.conf
cat > emulator.conf <<EOF
SUSHY_EMULATOR_FAKE_DRIVER = True
SUSHY_EMULATOR_STATE_DIR = '$folder'
EOF
timeout 120 venv/bin/python - <<'EOF'
from sushy_tools.emulator import main

# The application of sushy-emulator, with its driver of simulated systems.
client = main.app.test_client()
path = client.get('/redfish/v1/Systems').json['Members'][0]['@odata.id']


def shown(action, response):
    boot = client.get(path).json['Boot']
    result = (response.status_code, boot['BootSourceOverrideTarget'],
              boot['BootSourceOverrideEnabled'])
    print(f'{action} -> {result[0]}; GET: {result[1]}, {result[2]}')
    return result


assert shown('PATCH Pxe, Once', client.patch(path, json={'Boot': {
    'BootSourceOverrideTarget': 'Pxe', 'BootSourceOverrideEnabled': 'Once',
}})) == (204, 'Pxe', 'Continuous')
assert shown('power on', client.post(
    f'{path}/Actions/ComputerSystem.Reset', json={'ResetType': 'On'},
)) == (204, 'Pxe', 'Continuous')
assert shown('PATCH Disabled', client.patch(path, json={'Boot': {
    'BootSourceOverrideEnabled': 'Disabled',
}})) == (400, 'Pxe', 'Continuous')
EOF
