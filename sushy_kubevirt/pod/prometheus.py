# SPDX-License-Identifier: Apache-2.0
"""Prometheus text exposition (format 0.0.4) of counters and gauges.

Not prometheus_client: its import adds 4.4 MiB PSS and about 100 ms to a
process that has imported asyncio (measured with CPython 3.11), and there may
be one for each VM. Only counters and gauges are needed.
"""

from __future__ import annotations

from collections import abc
import os
import threading
import time
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client

_START = time.time()

#: Labels and value.
Sample: typing.TypeAlias = tuple[abc.Mapping[str, object], float]


class Counter:
    """Counter with a value for each combination of label values.

    :param name: metric name, ends in ``_total``
    :param help: help text
    :param labels: their names
    """

    kind = 'counter'

    def __init__(self, name: str, help: str,
                 labels: tuple[str, ...] = ()) -> None:
        self.name = name
        self.help = help
        self._labels = labels
        self._values: dict[tuple[typing.Any, ...], float] = (
            {} if labels else {(): 0})
        self._lock = threading.Lock()

    def add(self, *values: str | int, number: float = 1) -> None:
        """Increment the counter.

        :param values: label values in order. Keep their number bounded: every
            combination is stored.
        :param number: increment
        """
        with self._lock:
            self._values[values] = self._values.get(values, 0) + number

    def samples(self) -> list[Sample]:
        """Return the present values."""
        with self._lock:
            items = sorted(self._values.items())
        return [(dict(zip(self._labels, values)), number)
                for values, number in items]


class Gauge:
    """Metric whose value is read when it is scraped.

    :param name: metric name
    :param help: help text
    :param look: returns None for no sample
    :param kind: ``gauge``, or ``counter`` for a value counted elsewhere
    """

    def __init__(self, name: str, help: str,
                 look: abc.Callable[[], float | list[Sample] | None],
                 kind: str = 'gauge') -> None:
        self.name = name
        self.help = help
        self.kind = kind
        self._look = look

    def samples(self) -> list[Sample]:
        """Return the present values."""
        value = self._look()
        if value is None:
            return []
        return value if isinstance(value, list) else [({}, value)]


Metric: typing.TypeAlias = Counter | Gauge


def text(metrics: abc.Iterable[Metric]) -> bytes:
    """Format metrics."""
    lines = []
    for metric in metrics:
        lines += [f'# HELP {metric.name} {metric.help}',
                  f'# TYPE {metric.name} {metric.kind}']
        for labels, value in metric.samples():
            shown = ','.join(f'{name}="{_escaped(str(label))}"'
                             for name, label in labels.items())
            braced = '{' + shown + '}' if shown else ''
            lines.append(f'{metric.name}{braced} {value}')
    return ('\n'.join(lines) + '\n').encode()


def cluster(calls: abc.Mapping[client.CallKey, int],
            cache_age: float | None) -> list[Metric]:
    """Return the metrics of the connection to the Kubernetes API.

    :param calls: see `client.Client.calls`
    :param cache_age: seconds since the watch broke, 0 while it works
    """
    labels = ('verb', 'resource', 'code')
    return [
        Gauge('virtbmc_api_calls_total',
              'Requests to the Kubernetes API, by verb, resource and status '
              'code.',
              lambda: [(dict(zip(labels, key)), number)
                       for key, number in sorted(calls.items())],
              'counter'),
        Gauge('virtbmc_cache_age_seconds',
              'Age of the cached VM state; 0 while the watch is '
              'connected.', lambda: cache_age),
    ]


def process() -> list[Metric]:
    """Return process metrics, named as in Prometheus' own clients."""
    return [
        Gauge('process_cpu_seconds_total',
              'Total user and system CPU time spent in seconds.',
              time.process_time, 'counter'),
        Gauge('process_resident_memory_bytes',
              'Resident memory size in bytes.', _resident),
        Gauge('process_start_time_seconds',
              'Start time of the process since unix epoch in seconds.',
              lambda: _START),
        Gauge('process_open_fds', 'Number of open file descriptors.',
              lambda: len(os.listdir('/proc/self/fd'))),
    ]


def _resident() -> int:
    with open('/proc/self/statm') as stream:
        return int(stream.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def _escaped(value: str) -> str:
    return value.replace('\\', '\\\\').replace('"', '\\"').replace(
        '\n', '\\n')
