# SPDX-License-Identifier: Apache-2.0
"""Print what a client needs to use a BMC, as input for that client.

Without --show the output has a command that reads the password in its place.
Clients reach the address where the Service does: see "kubectl explain
vmbmc.spec.service".
"""

from __future__ import annotations

import argparse
import shlex
import typing

from sushy_kubevirt.kubectl import session as sessions

if typing.TYPE_CHECKING:
    from sushy_kubevirt.remote import endpoint

EXAMPLES = """\
kubectl bmc credentials node-0
kubectl bmc credentials node-0 -o ipmitool --show
kubectl bmc credentials node-0 -o baremetalhost --show | kubectl apply -f -
"""

_SYSTEM = '/redfish/v1/Systems/1'


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    sessions.add_name(parser)
    parser.add_argument('-o', '--output', choices=_FORMATS,
                        help='for which client; without it, a summary')
    parser.add_argument('--show', action='store_true',
                        help='print the password')


def run(session: sessions.Session, options: argparse.Namespace) -> int:
    """Print the input for a client."""
    bmc = session.bmc(options.name)
    if options.show:
        password = shlex.quote(bmc.password)
    else:
        password = (
            f'"$(kubectl get secret {shlex.quote(bmc.secret)} --namespace '
            f'{shlex.quote(bmc.namespace)} '
            "--output jsonpath='{.data.password}' | base64 --decode)\"")
    make = _FORMATS[options.output] if options.output else _summary
    sessions.show(make(bmc, password, options.show))
    return 0


def _url(bmc: endpoint.Bmc, scheme: str = '') -> str:
    from sushy_kubevirt.remote import endpoint
    own = 'https' if bmc.redfish_port else 'http'
    return f'{scheme or own}://' + endpoint.host_and_port(
        bmc.address, bmc.redfish_port or bmc.http_port,
        443 if bmc.redfish_port else 80)


def _serves(bmc: endpoint.Bmc, protocol: str, port: int | None) -> None:
    from sushy_kubevirt.remote import endpoint
    if port is None:
        raise endpoint.BmcUnavailable(
            bmc.name, f'does not serve {protocol}: see spec of "kubectl get '
            'vmbmc -o yaml"')


def _ca(bmc: endpoint.Bmc) -> str:
    return '' if not bmc.authority else (
        f'kubectl get configmap {shlex.quote(bmc.authority)} --namespace '
        f'{shlex.quote(bmc.namespace)} '
        "--output jsonpath='{.data.ca\\.crt}' > ca.crt\n")


def _summary(bmc: endpoint.Bmc, password: str, show: bool) -> str:
    lines = [f'Address:   {bmc.address}']
    if bmc.redfish_port or bmc.http_port:
        lines.append(f'Redfish:   {_url(bmc)}{_SYSTEM}')
    if bmc.ipmi_port:
        lines.append(f'IPMI:      UDP port {bmc.ipmi_port}')
    lines += [f'User name: {bmc.username}',
              'Password:  ' + (bmc.password if show else
                               f'in Secret {bmc.secret}; --show prints it')]
    if bmc.authority:
        lines.append(f'CA:        ConfigMap {bmc.authority}, ca.crt')
    return '\n'.join(lines)


def _curl(bmc: endpoint.Bmc, password: str, show: bool) -> str:
    _serves(bmc, 'Redfish', bmc.redfish_port or bmc.http_port)
    ca = '--cacert ca.crt ' if bmc.authority else ''
    # By its standard input, as every user can list arguments of processes.
    return (f"{_ca(bmc)}printf '%s:%s' {shlex.quote(bmc.username)} {password} "
            '| sed \'s/["\\]/\\\\&/g; s/.*/user = "&"/\' '
            f'| curl --config - {ca}{shlex.quote(_url(bmc) + _SYSTEM)}')


def _ipmitool(bmc: endpoint.Bmc, password: str, show: bool) -> str:
    _serves(bmc, 'IPMI', bmc.ipmi_port)
    return (f'IPMI_PASSWORD={password} ipmitool -I lanplus -H '
            f'{shlex.quote(bmc.address)} -p {bmc.ipmi_port} '
            f'-U {shlex.quote(bmc.username)} -E power status')


def _ironic(bmc: endpoint.Bmc, password: str, show: bool) -> str:
    values = {'redfish_address': _url(bmc), 'redfish_system_id': _SYSTEM,
              'redfish_username': bmc.username}
    if bmc.authority:
        # On the host of ironic-conductor.
        values['redfish_verify_ca'] = '/etc/ironic/ca.crt'
    driver = 'redfish'
    if not (bmc.redfish_port or bmc.http_port):
        driver = 'ipmi'
        values = {'ipmi_address': bmc.address, 'ipmi_port': str(bmc.ipmi_port),
                  'ipmi_username': bmc.username}
    options = [f'--driver-info {key}={shlex.quote(value)}'
               for key, value in values.items()]
    return (f'{_ca(bmc)}openstack baremetal node create --name '
            f'{shlex.quote(bmc.name)} --driver {driver} ' + ' '.join(options)
            + f' --driver-info {driver}_password={password}')


def _host(bmc: endpoint.Bmc, password: str, show: bool) -> str:
    secret: dict[str, object] = {
        'apiVersion': 'v1', 'kind': 'Secret',
        'metadata': {'name': f'{bmc.name}-host'},
        'stringData': {'username': bmc.username,
                       'password': bmc.password if show else
                       f'that of Secret {bmc.secret}: use --show'}}
    address: dict[str, object] = {
        'address': _url(bmc, 'redfish-virtualmedia'
                        if bmc.redfish_port else 'redfish-virtualmedia+http')
        + _SYSTEM}
    if not (bmc.redfish_port or bmc.http_port):
        address['address'] = f'ipmi://{bmc.address}:{bmc.ipmi_port}'
    address['credentialsName'] = f'{bmc.name}-host'
    if bmc.authority:
        # Metal3 has no CA for each host.
        address['disableCertificateVerification'] = True
    return sessions.serialized([secret, {
        'apiVersion': 'metal3.io/v1alpha1', 'kind': 'BareMetalHost',
        'metadata': {'name': bmc.name},
        'spec': {'online': False, 'bmc': address}}], 'documents')


_FORMATS = {'curl': _curl, 'ipmitool': _ipmitool, 'ironic': _ironic,
            'baremetalhost': _host}
