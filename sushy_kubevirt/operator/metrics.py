# SPDX-License-Identifier: Apache-2.0
"""The operator's metrics for Prometheus, which `pod.health` serves.

`pod.prometheus` writes the text format and says why no library does.
"""

from __future__ import annotations

import collections
from collections import abc
import typing

from sushy_kubevirt.pod import prometheus

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.shared import placement

#: Numbers of requests by HTTP method and HTTP status.
Calls: typing.TypeAlias = abc.Mapping[tuple[str, int], int]


class Metrics:
    """The metrics of one process.

    Another thread reads them, so values are replaced, never modified:
    ``is_leader``; and, None until this replica holds the Lease,
    ``queue_length``, ``bmcs`` by the reason of ``Ready`` and ``shards``, the
    number of BMCs in each.

    :param calls: returns the requests to the API server
    """

    def __init__(self,
                 calls: abc.Callable[[], abc.Iterable[Calls]] = tuple) -> None:
        self._calls = calls
        self.is_leader = False
        self.queue_length: int | None = None
        self.bmcs: dict[str, int] | None = None
        self.shards: dict[placement.ShardKey, int] | None = None
        name = 'sushy_kubevirt_operator_'
        self._reconciles = prometheus.Counter(
            name + 'reconciles_total',
            'Reconciles of BMCs, by result (done, failed).', ('result',))
        self._seconds = prometheus.Counter(
            name + 'reconcile_seconds_total',
            'Duration of all reconciles together, in seconds.')
        for result in ('done', 'failed'):
            self._reconciles.add(result, number=0)
        self._all = [
            self._reconciles, self._seconds,
            prometheus.Gauge(
                name + 'api_calls_total',
                'Requests to the API server, by method and HTTP status '
                '(0: no answer).', self._api_calls, 'counter'),
            prometheus.Gauge(
                name + 'queue_length',
                'BMCs that wait to be reconciled.', lambda: self.queue_length),
            prometheus.Gauge(
                name + 'bmcs',
                "BMCs by the reason of their condition Ready "
                "(ServiceReady: ready).", self._by_reason),
            prometheus.Gauge(
                name + 'shared_pod_bmcs',
                'BMCs in a shared pod, by its namespace and the number of its '
                'shard.', self._by_shard),
            prometheus.Gauge(
                name + 'leader',
                '1 if this replica holds the Lease, else 0.',
                lambda: int(self.is_leader)),
            *prometheus.process()]

    def count_reconcile(self, seconds: float, failed: bool = False) -> None:
        """Count a reconcile.

        :param seconds: its duration
        :param failed: whether it failed and is retried
        """
        self._reconciles.add('failed' if failed else 'done')
        self._seconds.add(number=seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return prometheus.text(self._all)

    def _api_calls(self) -> list[prometheus.Sample]:
        total: collections.Counter[tuple[str, int]] = collections.Counter()
        for calls in self._calls():
            total.update(calls)
        return [({'method': method, 'code': code}, count)
                for (method, code), count in sorted(total.items())]

    def _by_shard(self) -> list[prometheus.Sample] | None:
        if self.shards is None:
            return None
        return [({'namespace': namespace, 'shard': str(number)}, count)
                for (namespace, number), count in sorted(
                    self.shards.items())]

    def _by_reason(self) -> list[prometheus.Sample] | None:
        if self.bmcs is None:
            return None
        return [({'reason': reason}, count)
                for reason, count in sorted(self.bmcs.items())]
