# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of IPMI."""

from __future__ import annotations

import collections
from collections import abc

from sushy_kubevirt.pod import prometheus
from vbmc_kubevirt.ipmi import server

#: Label of commands that the BMC does not support.
OTHER = 'other'


def of(servers: abc.Sequence[server.Server]) -> list[prometheus.Metric]:
    """Collect the metrics of BMCs."""
    return [
        prometheus.Gauge(
            'virtbmc_ipmi_commands_total',
            'IPMI commands answered, by name and completion code.',
            lambda: _commands(servers), 'counter'),
        prometheus.Gauge(
            'virtbmc_ipmi_sessions', 'IPMI sessions that are established.',
            lambda: sum(bmc.sessions for bmc in servers)),
        prometheus.Gauge(
            'virtbmc_ipmi_sessions_total',
            'IPMI sessions requested, by result.',
            lambda: [({'result': 'established'}, sum(
                bmc.sessions_opened for bmc in servers)),
                ({'result': 'refused'}, sum(
                    bmc.sessions_refused for bmc in servers))],
            'counter')]


def _commands(servers: abc.Sequence[server.Server]
              ) -> list[prometheus.Sample]:
    if not servers:
        return []
    names = servers[0].command_names
    responses: collections.Counter[
        tuple[int | None, int | None, int]] = collections.Counter()
    for bmc in servers:
        responses.update(bmc.responses.copy())
    return [({'command': names.get((netfn, command), OTHER),
              'code': f'0x{code:02x}'}, number)
            for (netfn, command, code), number in sorted(
                responses.items(), key=str)]
