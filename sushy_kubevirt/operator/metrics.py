# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told of the operator.

`probes` serves it; whoever does something counts it here.
"""

from sushy_kubevirt.pod import prometheus


class Metrics:
    """The metrics of one process.

    What the process does not know, as it does not work, it does not tell.
    """

    def __init__(self):
        self._leads = False
        self._queue = None
        self._states = None
        name = 'sushy_kubevirt_operator_'
        self._reconciles = prometheus.Counter(
            name + 'reconciles_total',
            'How often a BMC was looked at and put right, by result '
            '(done, failed).', ('result',))
        self._seconds = prometheus.Counter(
            name + 'reconcile_seconds_total',
            'Seconds that all of these took together.')
        self._calls = prometheus.Counter(
            name + 'api_calls_total',
            'Requests to the API server, by method and HTTP status '
            '(0: no answer).', ('method', 'code'))
        for result in ('done', 'failed'):
            self._reconciles.add(result, number=0)
        self._all = [
            self._reconciles, self._seconds, self._calls,
            prometheus.Gauge(
                name + 'queue_length',
                'BMCs that wait to be looked at.', lambda: self._queue),
            prometheus.Gauge(
                name + 'bmcs',
                "BMCs by the reason of their condition Ready "
                "(ServiceReady: they work).", self._by_state),
            prometheus.Gauge(
                name + 'leader',
                '1 if this replica is the one that works, else 0.',
                lambda: int(self._leads)),
            *prometheus.process()]

    def reconciled(self, seconds, failed=False):
        """A BMC was looked at.

        :param seconds: that it took
        :param failed: whether it must be tried again
        """
        self._reconciles.add('failed' if failed else 'done')
        self._seconds.add(number=seconds)

    def queue(self, length):
        """So many BMCs wait."""
        self._queue = length

    def states(self, counts):
        """The BMCs there are.

        :param counts: dict of a reason and a number
        """
        self._states = dict(counts)

    def called(self, method, code):
        """The API server was asked.

        :param method: of HTTP
        :param code: HTTP status; 0 when there was no answer
        """
        self._calls.add(method, code)

    def leads(self, leads):
        """Whether this process works."""
        self._leads = leads

    def text(self):
        """:returns: bytes, in Prometheus' text format"""
        return prometheus.text(self._all)

    def _by_state(self):
        if self._states is None:
            return None
        return [({'reason': reason}, count)
                for reason, count in sorted(self._states.items())]
