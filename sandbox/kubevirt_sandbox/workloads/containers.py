# SPDX-License-Identifier: Apache-2.0
"""Runs one container of a pod as a process.

Starts, probes, restarts with back-off and ends the process. :mod:`pods`
provides its volumes and its address.

Source: kubernetes/pkg/kubelet/kuberuntime (1.36).
"""

import asyncio
import contextlib
import signal

from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.kubevirt import events
from kubevirt_sandbox.workloads import environment
from kubevirt_sandbox.workloads import fields
from kubevirt_sandbox.workloads import logs
from kubevirt_sandbox.workloads import probes
from kubevirt_sandbox.workloads import processes

#: Average delay until a node notices that a container runs, in seconds: it
#: checks once a second.
_NOTICED = 0.5

#: Maximum back-off as a multiple of the first one. A run of twice the maximum
#: back-off resets it.
_LONGEST = 30

_WAITING = {'waiting': {'reason': 'ContainerCreating'}}


def delay(first, failures):
    """Return the back-off before a container's restart in seconds.

    :param first: the first back-off in seconds.
    :param failures: number of exits since the last long run.
    """
    return 0 if failures < 2 else min(first * 2 ** (failures - 2),
                                      first * _LONGEST)


def is_restarted(policy, code):
    """Tell whether an ended container is restarted.

    :param policy: ``restartPolicy``.
    :param code: exit code.
    """
    return policy == 'Always' or (policy == 'OnFailure' and code != 0)


class Container:
    """One container.

    :param pod: its :class:`pods.Pod`.
    :param spec: its spec.
    :param policy: ``restartPolicy``; an init container has ``OnFailure``
        or ``Never``.
    """

    def __init__(self, pod, spec, policy):
        self.name = spec['name']
        self.spec = spec
        self.state = _WAITING
        self.last = {}
        self.restarts = 0
        self.ready = self.started = False
        self.log = self.previous = None
        #: Whether it has ended and will not be restarted.
        self.has_ended = False
        self._pod = pod
        self._policy = policy
        self._process = self._env = None
        self._clock = self._began = None
        self._stopping = asyncio.Event()
        self._failures = 0
        self._number = 0

    @property
    def running(self):
        """Tell whether the process runs."""
        return 'running' in self.state

    @property
    def code(self):
        """Return the exit code, or None."""
        return self.state.get('terminated', {}).get('exitCode')

    def status(self):
        """Return its entry of ``containerStatuses``."""
        return {'name': self.name, 'image': self.spec.get('image', ''),
                'imageID': '', 'ready': self.ready, 'started': self.started,
                'restartCount': self.restarts, 'state': self.state,
                'lastState': self.last, **(
                    {'containerID': self._identity} if self._number else {})}

    @property
    def _identity(self):
        return f'sandbox://{self._pod.uid}-{self.name}-{self._number}'

    # -- life cycle -------------------------------------------------------

    async def run(self):
        """Run until the container ends without another restart or is stopped.
        """
        while not self._stopping.is_set():
            if not (self.spec.get('command') or self.spec.get('args')):
                self._wait('ErrImagePull', 'the sandbox runs no images: '
                           'a container needs a command')
                self._pod.event(events.WARNING, 'Failed', 'Failed to pull '
                                f'image "{self.spec.get("image", "")}": the '
                                'sandbox runs no images: container '
                                f'{self.name} needs a command')
                await self._stopping.wait()
                break
            async with self._pod.turns.one() as turn:
                if self._stopping.is_set():
                    break
                try:
                    words, env = self._make()
                except fields.Missing as exc:
                    turn.end()
                    self._wait('CreateContainerConfigError', str(exc))
                    self._pod.event(events.WARNING, 'Failed', f'Error: {exc}')
                    await self._pod.wait_change(self._stopping)
                    continue
                await self._one(words, env, turn)
            ran = asyncio.get_running_loop().time() - self._began
            if self._stopping.is_set() or not is_restarted(
                    self._policy, self.code):
                break
            await self._back_off(ran)
        self.has_ended = True
        self._pod.schedule_status()

    def _make(self):
        """Build the command and the environment from the current state."""
        given = environment.variables(self.spec, self._pod.fields)
        mounts = self._pod.places(self.spec)
        more = self._pod.base(mounts)
        return environment.make(self.spec, given, more, environment.Places(
            mounts, self._pod.address))

    async def _one(self, words, env, turn):
        """Run the process once, from start to end.

        :param turn: a :class:`start_limiter.Turn`, held during the start.
        """
        loop = asyncio.get_running_loop()
        self._began, self._env = loop.time(), env
        self.previous, self.log = self.log, logs.Log()
        self._number += 1
        since = metadata.now()
        gone = asyncio.Event()
        try:
            self._process = self._pod.processes.start(
                words, env, self._pod.home(self.spec), self.log.write,
                gone.set, self._pod.identity(self.spec))
        except processes.NotStarted as exc:
            self._pod.event(events.WARNING, 'Failed', f'Error: {exc}')
            self._end('StartError', 128, since, str(exc))
            return
        self.state = {'running': {'startedAt': since}}
        self.started = 'startupProbe' not in self.spec
        self.ready = self.started and 'readinessProbe' not in self.spec
        self._pod.event(events.NORMAL, 'Started',
                        f'Started container {self.name}')
        self._pod.schedule_status()
        if self.ready:
            turn.end()
        self._clock = probes.Clock(self._pod.began, self._began)
        noticed = loop.call_later(_NOTICED, self.look)
        task = asyncio.create_task(self._probe(env, turn))
        try:
            await gone.wait()
        finally:
            self._clock = None
            noticed.cancel()
            task.cancel()
        code = self._process.code
        self._process = None
        self._end('Completed' if code == 0 else 'Error', code, since)

    def _end(self, reason, code, since, message=''):
        self.log.close()
        self.ready = self.started = False
        self.state = {'terminated': {
            'exitCode': code, 'reason': reason, 'startedAt': since,
            'finishedAt': metadata.now(), 'containerID': self._identity,
            **({'message': message} if message else {})}}
        self._pod.schedule_status()

    def _wait(self, reason, message):
        self.state = {'waiting': {'reason': reason, 'message': message}}
        self._pod.schedule_status()

    async def _back_off(self, ran):
        first = self._pod.back_off
        if ran > first * _LONGEST * 2:
            self._failures = 0
        self._failures += 1
        seconds = delay(first, self._failures)
        self.last = self.state
        if seconds:
            self._wait('CrashLoopBackOff', f'back-off {seconds:g}s '
                       f'restarting failed container={self.name} '
                       f'pod={self._pod.title}')
            self._pod.event(events.WARNING, 'BackOff', 'Back-off restarting '
                            f'failed container {self.name} in pod '
                            f'{self._pod.title}')
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()
        if not self._stopping.is_set():
            self.restarts += 1

    async def stop(self, grace):
        """Stop the container without another restart.

        :param grace: seconds between SIGTERM and SIGKILL.
        """
        self._stopping.set()
        await self._terminate(grace)

    async def _terminate(self, grace):
        process = self._process
        if process is None:
            return
        if grace > 0:
            process.send(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await process.gone.wait()
        process.kill()
        await process.gone.wait()

    def kill(self):
        """Kill the container without another restart."""
        self._stopping.set()
        if self._process is not None:
            self._process.kill()

    # -- probes -----------------------------------------------------------

    def look(self):
        """Run the readiness probe immediately if it is not ready."""
        if self._clock and self.started and not self.ready and (
                asyncio.get_running_loop().time()
                >= self._began + _NOTICED):
            self._clock.nudge.set()

    async def _probe(self, env, turn):
        checks = probes.Checks(
            self._pod.address, self.spec,
            lambda command: self._execute(command, env))
        startup = self.spec.get('startupProbe')
        if startup:
            passed = asyncio.Event()
            task = asyncio.create_task(self._follow(
                checks, 'Startup', startup, None,
                lambda good: passed.set() if good else self._restart(
                    'failed startup probe')))
            try:
                await passed.wait()
            finally:
                task.cancel()
            turn.end()
            self.started = True
            self.ready = 'readinessProbe' not in self.spec
            self._clock.nudge.set()
            self._pod.schedule_status()
        async with asyncio.TaskGroup() as group:
            if 'readinessProbe' in self.spec:
                group.create_task(self._follow(
                    checks, 'Readiness', self.spec['readinessProbe'], False,
                    lambda good: self._set_ready(good, turn)))
            if 'livenessProbe' in self.spec:
                group.create_task(self._follow(
                    checks, 'Liveness', self.spec['livenessProbe'], True,
                    lambda good: good or self._restart(
                        'failed liveness probe')))

    def _follow(self, checks, name, spec, value, on_change):
        return probes.follow(
            spec, checks.once, value, on_change,
            lambda wrong: self._pod.event(
                events.WARNING, 'Unhealthy', f'{name} probe failed: {wrong}'),
            self._clock, name == 'Readiness')

    def _set_ready(self, good, turn):
        turn.end()
        if self.running:
            self.ready = good
            self._pod.schedule_status()

    def _restart(self, why):
        if self._stopping.is_set():
            return
        self._pod.event(events.NORMAL, 'Killing', f'Container {self.name} '
                        f'{why}, will be restarted')
        self.ready = False
        self._pod.schedule_status()
        self._pod.spawn(self._terminate(self._pod.grace))

    def prepare_exec(self, command):
        """Prepare a command that runs in the container and ends with it.

        :returns: (arguments, environment, working directory)
        :raises processes.NotStarted: the program does not exist.
        """
        name, value = self._pod.processes.mark(self._process.pid)
        folder = self._pod.home(self.spec)
        return self._pod.processes.arguments(
            self._real(command), self._env, folder,
            self._pod.identity(self.spec)), {
                **self._env, name: value}, folder

    def _real(self, command):
        places = environment.Places(self._pod.places(self.spec),
                                    self._pod.address)
        return [places.real(word) for word in command]

    async def _execute(self, command, env):
        """Run the command of an ``exec`` probe."""
        gone = asyncio.Event()
        try:
            process = self._pod.processes.start(
                self._real(command), env,
                self._pod.home(self.spec), lambda data: None, gone.set,
                self._pod.identity(self.spec))
        except processes.NotStarted as exc:
            raise OSError(str(exc)) from None
        try:
            await gone.wait()
        finally:
            process.kill()
        return process.code
