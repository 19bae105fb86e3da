# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-redfish``: sushy-emulator as it runs in a BMC's pod.

The application is sushy-tools' own with this project's plugin, set up by the
config file that SUSHY_EMULATOR_CONFIG names, as under any WSGI server. This
adds the server, the port for probes and metrics, and an end in good order.
"""

import argparse
import logging
import os
import signal
import sys

from sushy_kubevirt.pod import certificate
from sushy_kubevirt.pod import health
from sushy_kubevirt.pod import metrics
from sushy_kubevirt.pod import probe
from sushy_kubevirt.pod import server

LOG = logging.getLogger(__name__)

_CONFIG = 'SUSHY_EMULATOR_CONFIG'
_HEALTH_PORT = 'VIRTBMC_HEALTH_PORT'


def main(argv=None):
    """Run until SIGTERM or SIGINT.

    :param argv: list of words, without the program's name
    :returns: exit code
    """
    parser = argparse.ArgumentParser(
        prog='sushy-kubevirt-redfish', description='Serve Redfish for one '
        'KubeVirt VM, as in the pod of a BMC. What there is to set is in the '
        'config file of sushy-emulator that %s names; %s is the TCP port for '
        'probes and metrics (/livez, /readyz, /metrics).'
        % (_CONFIG, _HEALTH_PORT))
    parser.parse_args(sys.argv[1:] if argv is None else argv)
    if not os.environ.get(_CONFIG):
        return _fail('%s has to name a config file' % _CONFIG)
    # Before the application, which makes its own otherwise; and Werkzeug's
    # lines have a time of their own in the middle.
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr,
        format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    # Reads the config file, and starts to watch.
    from sushy_tools.emulator import main as emulator
    try:
        return _serve(emulator.app)
    except OSError as exc:
        return _fail(exc.strerror or exc)


def _serve(app):
    address = app.config.get('SUSHY_EMULATOR_LISTEN_IP') or '0.0.0.0'
    port = app.config.get('SUSHY_EMULATOR_LISTEN_PORT', 8000)
    cert = app.config.get('SUSHY_EMULATOR_SSL_CERT')
    key = app.config.get('SUSHY_EMULATOR_SSL_KEY')
    tls = certificate.Certificate(cert, key) if cert and key else None
    serving = server.Server(address, port, app, tls)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: serving.stop())
    asked = probe.Probe(address, serving.port, tls is not None)
    cluster = app.systems.cluster
    told = health.Server(
        address, int(os.environ.get(_HEALTH_PORT) or 0), asked.live,
        lambda: asked.ready() or cluster.watch_problem,
        metrics.Metrics(app, lambda: serving.connections).text)
    told.start()
    LOG.info('Redfish on %s://%s port %d, probes and metrics on port %d',
             'http' if tls is None else 'https', address, serving.port,
             told.port)
    try:
        serving.serve()
    finally:
        told.close()
        app.sushy_kubevirt.close()
    return 0


def _fail(reason):
    print('sushy-kubevirt-redfish: %s' % reason, file=sys.stderr)
    return 1


if __name__ == '__main__':
    sys.exit(main())
