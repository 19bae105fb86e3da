# SPDX-License-Identifier: Apache-2.0
"""Startup, liveness and readiness probes of containers.

Source: kubernetes/pkg/kubelet/prober, pkg/probe (1.36). ``grpc`` is not
there.
"""

import asyncio
import contextlib
import dataclasses

from kubevirt_sandbox.workloads import httpprobe


@dataclasses.dataclass
class Plan:
    """The parameters of a probe; times in seconds."""

    delay: float
    period: float
    timeout: float
    successes: int
    failures: int

    @classmethod
    def read(cls, spec):
        """Make the parameters from a probe's spec."""
        return cls(spec.get('initialDelaySeconds') or 0,
                   spec.get('periodSeconds') or 10,
                   spec.get('timeoutSeconds') or 1,
                   spec.get('successThreshold') or 1,
                   spec.get('failureThreshold') or 3)


class Verdict:
    """The state of a probe after some results.

    :param plan: a :class:`Plan`.
    :param value: at the beginning: True, False or None.
    """

    def __init__(self, plan, value):
        self.value = value
        self._plan = plan
        self._last, self._run = None, 0

    def add(self, result):
        """Add a result.

        :returns: whether the value has changed.
        """
        self._run = self._run + 1 if result == self._last else 1
        self._last = result
        enough = (self._plan.successes if result else self._plan.failures)
        if self._run < enough or self.value == result:
            return False
        self.value = result
        return True


def port_of(value, container):
    """Return the number of a port that may be given by name.

    :param container: the spec of the container.
    :returns: a number, or None.
    """
    if isinstance(value, int) or str(value).isdigit():
        return int(value)
    return next((p.get('containerPort') for p in container.get('ports') or ()
                 if p.get('name') == value), None)


class Checks:
    """Runs the probes of one container.

    :param address: the pod's address.
    :param container: its spec.
    :param run: coroutine function (words) that gives the exit code of a
        command in the container.
    """

    def __init__(self, address, container, run):
        self._address = address
        self._container = container
        self._run = run

    async def once(self, spec):
        """Run the probe once.

        :returns: '' when it went well, or what was wrong.
        """
        seconds = Plan.read(spec).timeout
        try:
            async with asyncio.timeout(seconds):
                if 'httpGet' in spec:
                    return await self._http(spec['httpGet'])
                if 'tcpSocket' in spec:
                    return await self._tcp(spec['tcpSocket'])
                if 'exec' in spec:
                    code = await self._run(spec['exec'].get('command') or [])
                    return '' if code == 0 else f'exit code {code}'
                return 'the sandbox has no such probe'
        except TimeoutError:
            return f'timed out after {seconds} s'
        except (OSError, ValueError) as exc:
            return _why(exc)

    async def _http(self, spec):
        host = spec.get('host') or self._address
        port = port_of(spec.get('port'), self._container)
        path = spec.get('path') or '/'
        scheme = (spec.get('scheme') or 'HTTP').lower()
        path = path if path.startswith('/') else '/' + path
        try:
            status = await httpprobe.status(
                host, port, path, [
                    (h.get('name', ''), h.get('value', ''))
                    for h in spec.get('httpHeaders') or ()],
                scheme == 'https')
        except OSError as exc:
            return f'Get "{scheme}://{host}:{port}{path}": {_why(exc)}'
        if 200 <= status < 400:
            return ''
        return f'HTTP probe failed with statuscode: {status}'

    async def _tcp(self, spec):
        host = spec.get('host') or self._address
        port = port_of(spec.get('port'), self._container)
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return ''


def _why(exc):
    if isinstance(exc, ConnectionRefusedError):
        return 'connect: connection refused'
    return (getattr(exc, 'strerror', '') or str(exc)
            or type(exc).__name__)


class Clock:
    """The schedule of a container's probes.

    The kubelet probes every ``periodSeconds``, counted from the start of the
    pod, not of the container. Only the readiness probe also runs in between,
    when the pod's status is updated while the container is not ready.

    :param pod: start of the pod, loop time.
    :param container: start of the container, loop time.
    """

    def __init__(self, pod, container):
        self.nudge = asyncio.Event()
        self._pod = pod
        self._container = container

    async def wait(self, plan, nudged):
        """Wait until the next probe is due.

        :param nudged: also end the wait when :attr:`nudge` is set.
        """
        loop = asyncio.get_running_loop()
        while True:
            # Add 1 ms, since timers may fire slightly early.
            gone = (loop.time() - self._pod + 0.001) // plan.period
            due = self._pod + (gone + 1) * plan.period
            if nudged:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self.nudge.wait()
                self.nudge.clear()
            else:
                await asyncio.sleep(due - loop.time())
            if loop.time() - self._container >= plan.delay:
                return


async def follow(spec, once, value, on_change, on_failure, clock,
                 nudged=False):
    """Probe repeatedly until the container fails the probe.

    :param spec: the probe's spec.
    :param once: coroutine function (spec); see :meth:`Checks.once`.
    :param value: the initial result.
    :param on_change: function of the new value.
    :param on_failure: function of the message of each failed probe.
    :param clock: a :class:`Clock`.
    :param nudged: a readiness probe, which goes on after failures.
    """
    plan = Plan.read(spec)
    verdict = Verdict(plan, value)
    while True:
        await clock.wait(plan, nudged)
        wrong = await once(spec)
        if wrong:
            on_failure(wrong)
        if verdict.add(not wrong):
            on_change(verdict.value)
            if not verdict.value and not nudged:
                return
