# SPDX-License-Identifier: Apache-2.0
"""Metrics as Prometheus reads them (text format 0.0.4).

Not prometheus_client, which would be the dearest package of a container
that serves IPMI; what a pod tells needs counters and gauges only.
"""

import os
import threading
import time

_START = time.time()


class Counter:
    """A counter, with a value for each combination of its labels.

    :param name: ends in ``_total``
    :param help: for people
    :param labels: tuple of names
    """

    kind = 'counter'

    def __init__(self, name, help, labels=()):
        self.name = name
        self.help = help
        self._labels = labels
        self._values = {} if labels else {(): 0}
        self._lock = threading.Lock()

    def add(self, *values, number=1):
        """Count.

        :param values: of the labels, in their order. They must be of a few
            kinds: each combination is kept.
        """
        with self._lock:
            self._values[values] = self._values.get(values, 0) + number

    def samples(self):
        """:returns: list of (dict of labels, value)"""
        with self._lock:
            found = sorted(self._values.items())
        return [(dict(zip(self._labels, values)), number)
                for values, number in found]


class Gauge:
    """Something that is looked at when it is asked for.

    :param name: text
    :param help: for people
    :param look: function; a number, or a list of (dict of labels, number),
        or None if there is nothing to tell
    :param kind: ``gauge``, or ``counter`` if it counts elsewhere
    """

    def __init__(self, name, help, look, kind='gauge'):
        self.name = name
        self.help = help
        self.kind = kind
        self._look = look

    def samples(self):
        """:returns: list of (dict of labels, value)"""
        found = self._look()
        if found is None:
            return []
        return found if isinstance(found, list) else [({}, found)]


def text(metrics):
    """The metrics as text.

    :param metrics: iterable of `Counter` and `Gauge`
    :returns: bytes
    """
    lines = []
    for metric in metrics:
        lines += [f'# HELP {metric.name} {metric.help}',
                  f'# TYPE {metric.name} {metric.kind}']
        for labels, value in metric.samples():
            shown = ','.join(f'{name}="{_escaped(str(each))}"'
                             for name, each in labels.items())
            lines.append('%s%s %s' % (
                metric.name, '{%s}' % shown if shown else '', value))
    return ('\n'.join(lines) + '\n').encode()


def cluster(machines):
    """What a BMC has to do with the API server.

    :param machines: a `kubevirt.cluster.Cluster`
    :returns: list of `Gauge`
    """
    labels = ('verb', 'resource', 'code')
    return [
        Gauge('virtbmc_api_calls_total',
              'Requests to the Kubernetes API, by verb, resource and status '
              'code.',
              lambda: [(dict(zip(labels, key)), number)
                       for key, number in sorted(machines.calls.items())],
              'counter'),
        Gauge('virtbmc_cache_age_seconds',
              'How old what is known of the VM may be; 0 while it is '
              'watched.', lambda: machines.cache_age),
    ]


def process():
    """What Prometheus' own clients tell of a process.

    :returns: list of `Gauge`
    """
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


def _resident():
    with open('/proc/self/statm') as stream:
        return int(stream.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def _escaped(value):
    return value.replace('\\', '\\\\').replace('"', '\\"').replace(
        '\n', '\\n')
