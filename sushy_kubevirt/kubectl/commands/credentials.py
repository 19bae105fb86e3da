# SPDX-License-Identifier: Apache-2.0
"""Print what a client needs to use a BMC, as input for that client.

Without --show the output has a command that reads the password in its place.
Clients reach the address where the Service does: see "kubectl explain
vmbmc.spec.service".
"""

from __future__ import annotations

import argparse
from collections import abc
import dataclasses
import json
import shlex

from sushy_kubevirt.kubectl import session as sessions

EXAMPLES = """\
kubectl bmc credentials node-0
kubectl bmc credentials node-0 -o ipmitool --show
kubectl bmc credentials node-0 -o baremetalhost --show | kubectl apply -f -
kubectl bmc credentials node-0 -o ironic --show > node-0.yaml
    openstack baremetal create node-0.yaml
"""

SUMMARY, HOST, IPMITOOL = 'summary', 'baremetalhost', 'ipmitool'

#: By client: how a value is quoted, and the text. The password is in no
#: command's arguments, which every user of the host can list.
FORMATS: dict[str, tuple[abc.Callable[[str], str], str]] = {
    SUMMARY: (str, """\
Address:   {address}
Redfish:   {system}
IPMI:      UDP port {ipmi_port}
User name: {username}
Password:  {password}
CA:        ConfigMap {authority}"""),
    'curl': (shlex.quote, """\
{save_ca}printf '%s:%s' {username} {password} | \
sed 's/["\\]/\\\\&/g; s/.*/user = "&"/' | curl --config - {cacert}{system}"""),
    IPMITOOL: (shlex.quote, """\
IPMI_PASSWORD={password} ipmitool -I lanplus -H {address} -p {ipmi_port} \
-U {username} -E power status"""),
    'ironic': (json.dumps, """\
nodes:
- name: {name}
  driver: redfish
  driver_info:
    redfish_address: {url}
    redfish_system_id: /redfish/v1/Systems/1
    redfish_username: {username}
    redfish_password: {password}
    # A file on the host of ironic-conductor, with ca.crt of the ConfigMap
    # that status.endpoints.redfish.certificateAuthority names.
    redfish_verify_ca: {verify_ca}"""),
    HOST: (json.dumps, """\
apiVersion: v1
kind: Secret
metadata:
  name: {host}
stringData:
  username: {username}
  password: {password}
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata:
  name: {name}
spec:
  online: false
  bmc:
    address: {metal3}
    credentialsName: {host}
    # Metal3 has no CA for each host.
    disableCertificateVerification: {unverified}"""),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)
    parser.add_argument('-o', '--output', choices=FORMATS, default=SUMMARY,
                        help='for which client (default: %(default)s)')
    parser.add_argument('--show', action='store_true',
                        help='print the password')


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Print the input for a client."""
    from sushy_kubevirt.remote import endpoint
    from sushy_kubevirt.remote import redfish
    bmc = session.bmc(options.name)
    protocol = 'IPMI' if options.output == IPMITOOL else 'Redfish'
    if options.output != SUMMARY and not (
            bmc.ipmi_port if protocol == 'IPMI' else bmc.url):
        raise endpoint.BmcUnavailable(
            bmc.name, f'does not serve {protocol}: see spec of "kubectl get '
            'vmbmc -o yaml"')
    quote, template = FORMATS[options.output]
    system = bmc.url and bmc.url + redfish.SYSTEM
    values = {name: quote(str(value or '<none>')) for name, value in {
        **dataclasses.asdict(bmc), 'url': bmc.url, 'system': system,
        'host': f'{bmc.name}-host', 'metal3': system.replace(
            'https', 'redfish-virtualmedia', 1).replace(
            'http:', 'redfish-virtualmedia+http:', 1)}.items()}
    values.update(
        save_ca='', cacert='', verify_ca='true', unverified='false')
    if bmc.authority:
        values.update(
            save_ca='kubectl get configmap {authority} --namespace {namespace}'
            " --output jsonpath='{{.data.ca\\.crt}}' > ca.crt\n".format(
                **values), cacert='--cacert ca.crt ',
            verify_ca='/etc/ironic/ca.crt', unverified='true')
    if not options.show:
        values['password'] = quote(
            f'in Secret {bmc.secret}; --show prints it')
        if quote is shlex.quote:
            values['password'] = (
                '"$(kubectl get secret {secret} --namespace {namespace} '
                "--output jsonpath='{{.data.password}}' | base64 --decode)\""
            ).format(**values)
    sessions.show(template.format(**values))
    return 0
