# SPDX-License-Identifier: Apache-2.0
"""``sushy-emulator`` with the kubevirt driver, as a fixture."""

import pathlib

import fixtures
import requests

from kubevirt_sandbox.testing import process
from tests.functional import checkout

CONFIG = checkout.ROOT / 'etc' / 'sushy-emulator' / 'kubevirt.conf'


class Emulator(fixtures.Fixture):
    """A running emulator.

    It reads the config file the project ships, then ``settings``.

    :param kubeconfig: path, for ``KUBECONFIG``; None leaves it out.
    :param settings: dictionary of config file names and Python values.
    :param server: ``werkzeug`` for the command ``sushy-emulator``,
        ``gunicorn``, or ``pod`` for ``sushy-kubevirt-redfish``.
    :param workers: of gunicorn.
    :param threads: of each of gunicorn's workers.
    :param env: further environment.
    :param auth: (user, password) that :meth:`request` sends.
    :param config: config file to read first.
    :param port: to listen on; 0 is a free one.
    :param log: file that gets its output.
    :param tls: (path of a certificate, path of its key, path of the CA) to
        serve HTTPS with.

    ``url`` is where it serves.
    """

    def __init__(self, kubeconfig=None, settings=None, server='werkzeug',
                 workers=1, threads=4, env=None, auth=None, config=CONFIG,
                 port=0, log=None, tls=None):
        super().__init__()
        self.kubeconfig = kubeconfig
        self.settings = dict(settings or {})
        self.server = server
        self.workers = workers
        self.threads = threads
        self.env = dict(env or {})
        self.auth = auth
        self.config = config
        self.port = port
        self.log = log
        self.tls = tls

    def _setUp(self):
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        config = self.home / 'emulator.conf'
        settings = {'SUSHY_EMULATOR_LISTEN_IP': '127.0.0.1',
                    'SUSHY_EMULATOR_LISTEN_PORT': self.port,
                    'SUSHY_EMULATOR_STATE_DIR': str(self.home),
                    **self.settings}
        if self.tls is not None:
            settings['SUSHY_EMULATOR_SSL_CERT'] = str(self.tls[0])
            settings['SUSHY_EMULATOR_SSL_KEY'] = str(self.tls[1])
        config.write_text(
            'with open(%r) as _stream:\n'
            '    exec(compile(_stream.read(), %r, "exec"), globals())\n'
            % (str(self.config), str(self.config))
            + ''.join('%s = %r\n' % pair for pair in settings.items()))
        env = dict(self.env)
        if self.kubeconfig is not None:
            env['KUBECONFIG'] = self.kubeconfig
        if self.server == 'gunicorn':
            env['SUSHY_EMULATOR_CONFIG'] = config
            command = ['gunicorn', '--bind', '127.0.0.1:%d' % self.port,
                       '--workers', self.workers, '--threads', self.threads,
                       '--no-control-socket', 'sushy_tools.emulator.main:app']
            if self.tls is not None:
                command += ['--certfile', self.tls[0],
                            '--keyfile', self.tls[1]]
            ready = r'Listening at: (\S+)'
        elif self.server == 'pod':
            env.update(SUSHY_EMULATOR_CONFIG=config, VIRTBMC_HEALTH_PORT=0)
            command = ['sushy-kubevirt-redfish']
            ready = r'Redfish on (\S+),'
        else:
            command = ['sushy-emulator', '--config', config]
            ready = r'Running on (\S+)'
        self.process = self.useFixture(process.Process(
            command, ready=ready, timeout=60,
            env=process.environment(self.home, env), cwd=self.home,
            log=self.log))
        self.url = self.process.match[1].rstrip('/')
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.auth = self.auth
        if self.tls is not None:
            self._session.verify = str(self.tls[2])
        self.addCleanup(self._session.close)

    def request(self, method, where, body=None, *, expect=None, **options):
        """Make one call.

        :param where: path from the root, ``/redfish/v1/…``.
        :param body: sent as JSON.
        :param expect: HTTP code, or several, of which one must come back.
        :returns: :class:`requests.Response`
        :raises AssertionError: another code came back.
        """
        if body is not None:
            options['json'] = body
        response = self._session.request(
            method, self.url + where, timeout=options.pop('timeout', 60),
            **options)
        if expect is not None:
            codes = (expect,) if isinstance(expect, int) else expect
            if response.status_code not in codes:
                raise AssertionError('%s %s: %d instead of %s: %s' % (
                    method, where, response.status_code, expect,
                    response.text[:1000]))
        return response

    def systems(self):
        """List the paths of all systems."""
        body = self.request('GET', '/redfish/v1/Systems', expect=200).json()
        return [member['@odata.id'] for member in body['Members']]

    def system(self, identity):
        """Read a system by UUID (or name: a redirect is followed)."""
        return self.request('GET', '/redfish/v1/Systems/' + identity,
                            expect=200).json()

    def patch_system(self, identity, body, expect=(200, 202, 204)):
        """PATCH a system; the answer."""
        return self.request('PATCH', '/redfish/v1/Systems/' + identity, body,
                            expect=expect)

    def reset(self, identity, reset_type, expect=(200, 202, 204)):
        """POST ``ComputerSystem.Reset``; the answer."""
        return self.request(
            'POST', '/redfish/v1/Systems/%s/Actions/ComputerSystem.Reset'
            % identity, {'ResetType': reset_type}, expect=expect)
