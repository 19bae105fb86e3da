# SPDX-License-Identifier: Apache-2.0
"""One process serves all requests: how servers start, replace and end it."""

import os
import pathlib
import re
import signal

import bcrypt
import fixtures

from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import sandbox

SESSIONS = '/redfish/v1/SessionService/Sessions'
SYSTEMS = '/redfish/v1/Systems'


def handles_sigabrt(pid):
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    caught = int(re.search(r'SigCgt:\s*([0-9a-f]+)', status)[1], 16)
    return bool(caught >> signal.SIGABRT - 1 & 1)


class OneProcessTestCase(base.SandboxTestCase):

    VMS = 1

    def start(self, server='gunicorn', settings=None, **options):
        return self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), {
                'SUSHY_EMULATOR_KUBEVIRT_STATE_SECRET':
                    sandbox.NAMESPACE + '/sushy-kubevirt-state',
                **(settings or {})}, server, **options))

    def worker(self, started, number=1):
        """Wait until gunicorn has started some workers; return the last one.

        They ignore SIGTERM until they have their own signal handlers,
        SIGABRT's last. One that is stopped while it loads the application
        ends gunicorn with an error.
        """
        pids = self.until(lambda: (pids := re.findall(
            r'Booting worker with pid: (\d+)', started.process.output))[
                number - 1:] and pids)
        self.until(lambda: handles_sigabrt(pids[-1]))
        return int(pids[-1])


class TestStart(OneProcessTestCase):

    def assert_refused(self, words, **options):
        started = emulator.Emulator(self.sandbox.bmc_account(),
                                    server='gunicorn', **options)
        try:
            started.setUp()
        except fixtures.MultipleExceptions as exc:
            output = str(exc.args[0][1])    # before it listened
        else:
            self.addCleanup(started.cleanUp)
            self.assertEqual(3, started.process.wait(30))
            output = started.process.output
        for word in words:
            self.assertIn(word, output)
        self.assertNotIn('Traceback', output)
        # The arbiter gives up instead of replacing the workers.
        self.assertLess(output.count('Booting worker'), 4, output)
        self.assertEqual(1, output.count('sushy-kubevirt: '), output)

    def test_second_worker_is_refused(self):
        for env in ({'GUNICORN_CMD_ARGS': '--workers 2'},
                    {'WEB_CONCURRENCY': '3'}):
            self.assert_refused(
                ('sushy-kubevirt: gunicorn starts ', ' workers',
                 'sushy-kubevirt-redfish', '--threads 8'), env=env)

    def test_preload_is_refused(self):
        self.assert_refused(('sushy-kubevirt: gunicorn has loaded',
                             '--preload'),
                            env={'GUNICORN_CMD_ARGS': '--preload'})

    def test_one_worker_is_served_by_many_threads(self):
        started = self.start(threads=8, env={
            'GUNICORN_CMD_ARGS': '--workers 1'})
        [path] = started.systems()
        started.request('GET', path, expect=200)

    def test_debug_mode_has_no_reloader(self):
        started = self.start('werkzeug', env={'FLASK_DEBUG': '1'})
        started.request('GET', SYSTEMS, expect=200)
        self.assertIn('Debug mode: on', started.process.output)
        self.assertNotIn('Restarting with', started.process.output)

    def test_other_drivers_have_workers(self):
        started = self.useFixture(emulator.Emulator(
            settings={'SUSHY_EMULATOR_SYSTEM_DRIVER': 'fake'},
            server='gunicorn', env={
                'GUNICORN_CMD_ARGS': '--workers 2 --preload'}))
        started.request('GET', SYSTEMS, expect=200)

    def test_two_emulators_of_one_configuration(self):
        for started in self.start(), self.start(), self.start('werkzeug'):
            [path] = started.systems()
            started.patch_system(path.rpartition('/')[2], {'AssetTag': 'x'})


class TestEnd(OneProcessTestCase):

    def check_sigterm(self, server, send=None):
        started = self.start(server)
        started.request('GET', SYSTEMS, expect=200)
        if server == 'gunicorn':
            self.worker(started)
        if send is None:
            started.process.send(signal.SIGTERM)
        else:
            send(started.process.pid, signal.SIGTERM)
        self.assertEqual(0, started.process.wait(30), started.process.output)
        self.assertNotIn('Traceback', started.process.output)

    def test_sigterm(self):
        for server in 'werkzeug', 'pod', 'gunicorn':
            self.check_sigterm(server)

    def test_sigterm_of_all_processes(self):
        """As systemd stops a service."""
        self.check_sigterm('gunicorn', os.killpg)


class TestReplacement(OneProcessTestCase):
    """gunicorn replaces its worker; sessions end with it."""

    def setUp(self):
        super().setUp()
        digest = bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()
        [path] = self.create_tempfiles([('accounts', f'admin:{digest}\n')])
        self.settings = {'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS': path}

    def log_in(self, started):
        return {'X-Auth-Token': started.request('POST', SESSIONS, {
            'UserName': 'admin', 'Password': 'secret'}, expect=201,
            headers={'Connection': 'close'}).headers['X-Auth-Token'],
            'Connection': 'close'}

    def assert_replaced(self, started, number, before):
        """Check that another worker serves, after an earlier one."""
        self.worker(started, number)
        self.until(lambda: started.request(
            'GET', SYSTEMS, headers=before).status_code == 401)
        after = self.log_in(started)
        started.request('GET', SYSTEMS, headers=after, expect=200)
        return after

    def test_after_reload_and_kill(self):
        started = self.start(settings=self.settings)
        worker = self.worker(started)
        before = self.log_in(started)
        started.request('GET', SYSTEMS, headers=before, expect=200)
        started.process.send(signal.SIGHUP)
        started.process.wait_output(f'Worker exiting .pid: {worker}')
        before = self.assert_replaced(started, 2, before)
        os.kill(self.worker(started, 2), signal.SIGKILL)
        self.assert_replaced(started, 3, before)
        started.process.send(signal.SIGTERM)
        self.assertEqual(0, started.process.wait(30), started.process.output)
        self.assertNotIn('Traceback', started.process.output)

    def test_added_worker_serves_nothing(self):
        started = self.start(settings=self.settings)
        self.worker(started)
        session = self.log_in(started)
        started.process.send(signal.SIGTTIN)
        started.process.wait_output('serves nothing: gunicorn starts 2')
        for _ in range(10):
            started.request('GET', SYSTEMS, headers=session, expect=200)
        # gunicorn ends the first one.
        started.process.send(signal.SIGTTOU)
        self.assert_replaced(started, 3, session)

    def test_after_a_number_of_requests(self):
        started = self.start(settings=self.settings, env={
            'GUNICORN_CMD_ARGS': '--max-requests 5'})
        before = self.log_in(started)
        for _ in range(4):
            started.request('GET', SYSTEMS, headers=before, expect=200)
        self.assert_replaced(started, 2, before)
