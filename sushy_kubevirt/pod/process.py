# SPDX-License-Identifier: Apache-2.0
"""The life of ``sushy-kubevirt-redfish``: what it starts, and its end."""

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


def main(argv):
    """Run until SIGTERM or SIGINT.

    :param argv: list of words, without the program's name
    :returns: exit code
    """
    if argv:
        _explain(argv)
    if not os.environ.get(_CONFIG):
        return _fail(f'{_CONFIG} has to name a config file')
    port = os.environ.get(_HEALTH_PORT) or '8081'
    if not port.isdecimal() or int(port) > 65535:
        return _fail(f'{_HEALTH_PORT} has to be a TCP port, not {port!r}')
    # Before the application, which makes its own otherwise.
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr,
        format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    # Reads the config file, and starts to watch.
    from sushy_tools.emulator import main as emulator
    try:
        return _serve(emulator.app, int(port))
    except OSError as exc:
        return _fail(exc.strerror or exc)


def _serve(app, health_port):
    address = app.config.get('SUSHY_EMULATOR_LISTEN_IP') or '0.0.0.0'
    port = app.config.get('SUSHY_EMULATOR_LISTEN_PORT', 8000)
    cert = app.config.get('SUSHY_EMULATOR_SSL_CERT')
    key = app.config.get('SUSHY_EMULATOR_SSL_KEY')
    tls = certificate.Certificate(cert, key) if cert and key else None
    serving = http_server.Server(everywhere(address), port, app, tls)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: serving.stop())
    asked = redfish_probe.Probe(address, serving.port, tls is not None)
    told = health.Server(
        address, health_port, asked.live, lambda: _unready(app, asked),
        metrics.Metrics(app, lambda: serving.connections).text)
    told.start()
    host = f'[{address}]' if ':' in address else address
    LOG.info('Redfish on %s://%s:%d, probes and metrics on http://%s:%d',
             'http' if tls is None else 'https', host, serving.port, host,
             told.port)
    try:
        serving.serve()
    finally:
        told.close()
        app.sushy_kubevirt.close()
    return 0


def everywhere(address):
    """Where to listen in a pod: at all of its addresses.

    ``kubectl port-forward`` comes to a pod's loopback. Where pods are
    processes of one machine, as in the sandbox, each has an address of that
    alone, and keeps to it.

    :param address: the pod's
    """
    found = ipaddress.ip_address(address)
    if found.is_loopback:
        return address
    return '0.0.0.0' if found.version == 4 else '::'


def _unready(app, asked):
    """Why clients would not be served, a sentence; '' if they are."""
    login = app.sushy_kubevirt.services.login
    if login.required and not login.accounts():
        return 'Nobody can log in: the Secret has no usable account.'
    return asked.ready() or app.systems.cluster.watch_problem


def _explain(argv):
    # Neither is wanted in a pod.
    import argparse
    from importlib import metadata

    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description='Serve Redfish for one KubeVirt VM, as in '
        'the pod of a BMC. What there is to set is in the config file of '
        'sushy-emulator that %s names; %s is the TCP port for probes and '
        'metrics (/livez, /readyz, /metrics), 8081 if it is not set.'
        % (_CONFIG, _HEALTH_PORT))
    parser.add_argument('--version', action='version', version='%s %s' % (
        _PROGRAM, metadata.version('sushy-kubevirt')))
    parser.parse_args(argv)


def _fail(reason):
    print(f'{_PROGRAM}: {reason}', file=sys.stderr)
    return 1
