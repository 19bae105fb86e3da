# SPDX-License-Identifier: Apache-2.0
"""The process ``sushy-kubevirt-redfish``: reads settings, starts and stops.

It serves sushy-emulator's application with `http_server`, and probes and
metrics with `health`.
"""

import ipaddress
import logging
import os
import signal
import sys

from sushy_kubevirt.pod import certificate
from sushy_kubevirt.pod import health
from sushy_kubevirt.pod import http_server
from sushy_kubevirt.pod import metrics
from sushy_kubevirt.pod import redfish_probe

LOG = logging.getLogger(__name__)

_PROGRAM = 'sushy-kubevirt-redfish'
_CONFIG = 'SUSHY_EMULATOR_CONFIG'
_HEALTH_PORT = 'VIRTBMC_HEALTH_PORT'
_HTTP_PORT = 'VIRTBMC_HTTP_PORT'


def main(argv):
    """Run until SIGTERM or SIGINT.

    :param argv: list of words, without the program's name
    :returns: exit code
    """
    if argv:
        _parse_arguments(argv)
    if not os.environ.get(_CONFIG):
        return _fail(f'{_CONFIG} has to name a config file')
    ports = []
    for name, default in ((_HEALTH_PORT, '8081'), (_HTTP_PORT, '')):
        port = os.environ.get(name) or default
        if port and not (port.isdecimal() and int(port) < 65536):
            return _fail(f'{name} has to be a TCP port, not {port!r}')
        ports.append(int(port) if port else None)
    # Before Flask's application is created, which else adds a handler.
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr,
        format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    # The import reads the config file and starts the watches.
    from sushy_tools.emulator import main as emulator
    try:
        return _serve(emulator.app, *ports)
    except OSError as exc:
        return _fail(exc.strerror or exc)


def _serve(app, health_port, http_port):
    address = app.config.get('SUSHY_EMULATOR_LISTEN_IP') or '0.0.0.0'
    port = app.config.get('SUSHY_EMULATOR_LISTEN_PORT', 8000)
    cert = app.config.get('SUSHY_EMULATOR_SSL_CERT')
    key = app.config.get('SUSHY_EMULATOR_SSL_KEY')
    tls = certificate.Certificate(cert, key) if cert and key else None
    find = app.sushy_kubevirt.responses.find
    server = http_server.Server(listen_address(address), port, app, tls,
                                find=find)
    servers = [server]
    if http_port is not None and tls is not None:
        # HTTP beside HTTPS.
        servers.append(http_server.Server(
            listen_address(address), http_port, app,
            max_connections=http_server.MAX_CONNECTIONS // 2, find=find))
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: [one.stop() for one in servers])
    probes = [redfish_probe.Probe(address, one.port, one.tls)
              for one in servers]
    health_server = health.Server(
        address, health_port,
        lambda: _first(probe.live() for probe in probes),
        lambda: _readiness_problem(app, probes),
        metrics.Metrics(app, lambda: sum(
            one.connections for one in servers)).text)
    health_server.start()
    host = f'[{address}]' if ':' in address else address
    for one in servers[1:]:
        LOG.info('Redfish without TLS on http://%s:%d', host, one.port)
    LOG.info('Redfish on %s://%s:%d, probes and metrics on http://%s:%d',
             'http' if tls is None else 'https', host, server.port, host,
             health_server.port)
    try:
        http_server.run(*servers)
    finally:
        health_server.close()
        app.sushy_kubevirt.close()
    return 0


def listen_address(address):
    """Choose the address to listen on in a pod: all of its addresses.

    ``kubectl port-forward`` connects to a pod's loopback address. In the
    sandbox, pods are processes of one machine, each with a loopback address
    of its own, and listen on that one only.

    :param address: IP address of the pod
    :returns: IP address; the wildcard address unless it is a loopback one
    """
    found = ipaddress.ip_address(address)
    if found.is_loopback:
        return address
    return '0.0.0.0' if found.version == 4 else '::'


def _first(problems):
    return next(filter(None, problems), '')


def _readiness_problem(app, probes):
    """:returns: why the BMC is not ready, a sentence; '' if it is"""
    login = app.sushy_kubevirt.services.login
    if login.required and not login.configured():
        return (
            'No login is possible: no usable account in '
            f'{", ".join(app.systems.settings.accounts)}; correct the Secret '
            'that is mounted there.')
    return (_first(probe.ready() for probe in probes)
            or app.systems.cluster.watch_problem)


def _parse_arguments(argv):
    # Imported here because a pod passes no arguments.
    import argparse
    from importlib import metadata

    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description=(
            'Serve Redfish for one KubeVirt VM, as in the pod of a BMC. '
            f'Settings are environment variables: {_CONFIG} is the path of a '
            f'config file of sushy-emulator, {_HEALTH_PORT} the TCP port for '
            'probes and metrics (/livez, /readyz, /metrics), 8081 if it is '
            f'not set. With TLS, {_HTTP_PORT} is a TCP port for plain HTTP '
            'beside HTTPS; none if it is not set.'))
    parser.add_argument('--version', action='version', version=(
        f"{_PROGRAM} {metadata.version('sushy-kubevirt')}"))
    parser.parse_args(argv)


def _fail(reason):
    print(f'{_PROGRAM}: {reason}', file=sys.stderr)
    return 1
