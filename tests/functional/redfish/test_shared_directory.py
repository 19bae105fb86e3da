# SPDX-License-Identifier: Apache-2.0
"""The folder that the workers of an emulator share, with each server."""

import os
import pathlib
import re
import signal

import bcrypt

from tests.fixtures import base
from tests.fixtures import emulator
from tests.fixtures import sandbox

SESSIONS = '/redfish/v1/SessionService/Sessions'


def has_ended(pid):
    return not pathlib.Path(f'/proc/{pid}').exists()


def handles_sigabrt(pid):
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    caught = int(re.search(r'SigCgt:\s*([0-9a-f]+)', status)[1], 16)
    return bool(caught >> signal.SIGABRT - 1 & 1)


class SharedDirectoryTestCase(base.SandboxTestCase):

    VMS = 0

    def start(self, **options):
        started = self.useFixture(emulator.Emulator(
            self.sandbox.bmc_account(), {
                'SUSHY_EMULATOR_KUBEVIRT_STATE_SECRET':
                    sandbox.NAMESPACE + '/sushy-kubevirt-state',
                **options.pop('settings', {})}, **options))
        started.request('GET', '/redfish/v1/', expect=200)
        return started

    def folders(self, started):
        return list(started.home.glob('sushy-kubevirt-*'))

    def wait_workers(self, started, number):
        """Wait until workers have started; return the newest one's pid.

        gunicorn's workers ignore SIGTERM until they have their own signal
        handlers, SIGABRT's last. One that is stopped while it loads the
        application ends gunicorn with an error.
        """
        pids = self.until(lambda: (found := re.findall(
            r'Booting worker with pid: (\d+)', started.process.output))[
                number - 1:] and found)
        self.until(lambda: all(
            has_ended(pid) or handles_sigabrt(pid) and list(
                started.home.glob(f'sushy-kubevirt-*/{pid}-*.worker'))
            for pid in pids))
        return int(pids[-1])

    def check_removed(self, started, send):
        self.assertEqual(1, len(self.folders(started)))
        send()
        self.assertEqual(0, started.process.wait(30),
                         started.process.output)
        self.assertEqual([], self.folders(started))
        self.assertNotIn('Traceback', started.process.output)

    def check_sigterm(self, workers=1, **options):
        started = self.start(workers=workers, **options)
        if options['server'] == 'gunicorn':
            self.wait_workers(started, workers)
        self.check_removed(started,
                           lambda: started.process.send(signal.SIGTERM))

    def test_sigterm_of_sushy_emulator(self):
        self.check_sigterm(server='werkzeug')

    def test_sigterm_of_pod(self):
        self.check_sigterm(server='pod')

    def test_sigterm_of_gunicorn(self):
        self.check_sigterm(server='gunicorn', workers=3)

    def test_sigterm_of_gunicorn_with_preload(self):
        self.check_sigterm(server='gunicorn', workers=2,
                           env={'GUNICORN_CMD_ARGS': '--preload'})

    def test_sigterm_of_all_processes(self):
        """As systemd stops a service."""
        started = self.start(server='gunicorn', workers=2)
        self.wait_workers(started, 2)
        self.check_removed(started, lambda: os.killpg(
            started.process.pid, signal.SIGTERM))

    def test_sessions_survive_the_only_worker(self):
        digest = bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()
        file = self.create_tempfiles([('accounts', f'admin:{digest}\n')])[0]
        started = self.start(server='gunicorn', settings={
            'SUSHY_EMULATOR_KUBEVIRT_ACCOUNTS': file})
        token = started.request('POST', SESSIONS, {
            'UserName': 'admin', 'Password': 'secret'},
            expect=201).headers['X-Auth-Token']

        def replaced(number):
            self.wait_workers(started, number)
            self.until(lambda: started.request(
                'GET', '/redfish/v1/Systems', headers={
                    'X-Auth-Token': token, 'Connection': 'close'},
                expect=200))

        worker = self.wait_workers(started, 1)
        started.process.send(signal.SIGHUP)
        started.process.wait_output(f'Worker exiting .pid: {worker}')
        replaced(2)
        os.kill(self.wait_workers(started, 2), signal.SIGKILL)
        replaced(3)
        self.check_removed(started,
                           lambda: started.process.send(signal.SIGTERM))

    def test_next_start_removes_what_a_crash_left(self):
        crashed = self.start()
        crashed.process.send(signal.SIGKILL)
        crashed.process.wait(30)
        [left] = self.folders(crashed)
        # Another configuration, so that it does not take the folder over.
        following = self.start(settings={
            'SUSHY_EMULATOR_STATE_DIR': str(crashed.home),
            'SUSHY_EMULATOR_KUBEVIRT_SESSION_TIMEOUT': 60})
        [used] = self.folders(crashed)
        self.assertNotEqual(left, used)
        following.process.send(signal.SIGTERM)
        following.process.wait(30)
        self.assertEqual([], self.folders(crashed))
