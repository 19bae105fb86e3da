# SPDX-License-Identifier: Apache-2.0
"""Probes: whether a container has started, lives, and is ready.

Source: kubernetes/pkg/kubelet/prober, pkg/probe (1.36). ``grpc`` is not
there.
"""

import asyncio
import contextlib
import dataclasses

import aiohttp


@dataclasses.dataclass
class Plan:
    """When a probe is made, and when it is believed; times in seconds."""

    delay: float
    period: float
    timeout: float
    successes: int
    failures: int

    @classmethod
    def read(cls, spec):
        """From a probe's spec."""
        return cls(spec.get('initialDelaySeconds') or 0,
                   spec.get('periodSeconds') or 10,
                   spec.get('timeoutSeconds') or 1,
                   spec.get('successThreshold') or 1,
                   spec.get('failureThreshold') or 3)


class Verdict:
    """What is believed after some results.

    :param plan: a :class:`Plan`.
    :param value: at the beginning: True, False or None.
    """

    def __init__(self, plan, value):
        self.value = value
        self._plan = plan
        self._last, self._run = None, 0

    def add(self, result):
        """Add a result.

        :returns: whether the value is another one now.
        """
        self._run = self._run + 1 if result == self._last else 1
        self._last = result
        enough = (self._plan.successes if result else self._plan.failures)
        if self._run < enough or self.value == result:
            return False
        self.value = result
        return True


def port_of(value, container):
    """The number of a port that may be a name of one.

    :param container: the spec of the container.
    :returns: a number, or None.
    """
    if isinstance(value, int) or str(value).isdigit():
        return int(value)
    return next((p.get('containerPort') for p in container.get('ports') or ()
                 if p.get('name') == value), None)


class Checks:
    """How to make probes of one container.

    :param session: an :class:`aiohttp.ClientSession`.
    :param address: of the pod.
    :param container: its spec.
    :param run: coroutine function (words) that gives the exit code of a
        command in the container.
    """

    def __init__(self, session, address, container, run):
        self._session = session
        self._address = address
        self._container = container
        self._run = run

    async def once(self, spec):
        """Probe once.

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
        except (OSError, aiohttp.ClientError, ValueError) as exc:
            return str(exc) or type(exc).__name__

    async def _http(self, spec):
        host = spec.get('host') or self._address
        port = port_of(spec.get('port'), self._container)
        path = spec.get('path') or '/'
        url = (f'{(spec.get("scheme") or "HTTP").lower()}://{host}:{port}'
               f'{path if path.startswith("/") else "/" + path}')
        headers = {'User-Agent': 'kube-probe/1.36', **{
            h['name']: h['value'] for h in spec.get('httpHeaders') or ()}}
        # As a node does: the certificate is not looked at.
        async with self._session.get(
                url, headers=headers, ssl=False,
                allow_redirects=False) as answer:
            if 200 <= answer.status < 400:
                return ''
            return f'HTTP probe failed with statuscode: {answer.status}'

    async def _tcp(self, spec):
        _, writer = await asyncio.open_connection(
            spec.get('host') or self._address,
            port_of(spec.get('port'), self._container))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return ''


async def follow(spec, once, value, on_change, on_failure):
    """Probe again and again.

    :param spec: of the probe.
    :param once: coroutine function (spec); see :meth:`Checks.once`.
    :param value: what is believed at the beginning.
    :param on_change: function of the new value.
    :param on_failure: function of what was wrong, each time.
    """
    plan = Plan.read(spec)
    verdict = Verdict(plan, value)
    await asyncio.sleep(plan.delay)
    while True:
        wrong = await once(spec)
        if wrong:
            on_failure(wrong)
        if verdict.add(not wrong):
            on_change(verdict.value)
        await asyncio.sleep(plan.period)
