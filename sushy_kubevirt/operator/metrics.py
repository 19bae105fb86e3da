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

    A replica that does not hold the Lease has no samples of BMCs.

    :param calls: returns the requests to the API server
    """

    def __init__(self,
                 calls: abc.Callable[[], abc.Iterable[Calls]] = tuple) -> None:
        self._calls = calls
        self._is_leader = False
        self._queue: int | None = None
        self._bmcs: dict[str, int] | None = None
        self._shards: dict[placement.ShardKey, int] | None = None
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
                'BMCs that wait to be reconciled.', lambda: self._queue),
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
                lambda: int(self._is_leader)),
            *prometheus.process()]

    def count_reconcile(self, seconds: float, failed: bool = False) -> None:
        """Count a reconcile.

        :param seconds: its duration
        :param failed: whether it failed and is retried
        """
        self._reconciles.add('failed' if failed else 'done')
        self._seconds.add(number=seconds)

    def set_queue_length(self, length: int) -> None:
        """Set how many BMCs wait to be reconciled."""
        self._queue = length

    def set_bmcs(self, counts: abc.Mapping[str, int]) -> None:
        """Set how many BMCs there are, by the reason of ``Ready``."""
        self._bmcs = dict(counts)

    def set_shards(self, counts: abc.Mapping[placement.ShardKey, int]) -> None:
        """Set how many BMCs the shared pods have."""
        self._shards = dict(counts)

    def set_leader(self, is_leader: bool) -> None:
        """Set whether this process holds the Lease."""
        self._is_leader = is_leader

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
        if self._shards is None:
            return None
        return [({'namespace': namespace, 'shard': str(number)}, count)
                for (namespace, number), count in sorted(
                    self._shards.items())]

    def _by_reason(self) -> list[prometheus.Sample] | None:
        if self._bmcs is None:
            return None
        return [({'reason': reason}, count)
                for reason, count in sorted(self._bmcs.items())]
