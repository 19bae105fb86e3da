# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of IPMI."""

from __future__ import annotations

import collections

from sushy_kubevirt.pod import prometheus

#: Label of commands that the BMC does not support.
OTHER = 'other'


def of(servers):
    """Collect the metrics of BMCs.

    :param servers: list of `ipmi.server.Server`
    :returns: list of `prometheus.Gauge`
    """
    return [
        prometheus.Gauge(
            'virtbmc_ipmi_commands_total',
            'IPMI commands answered, by name and completion code.',
            lambda: _commands(servers), 'counter'),
        prometheus.Gauge(
            'virtbmc_ipmi_sessions', 'IPMI sessions that are established.',
            lambda: sum(one.sessions for one in servers)),
        prometheus.Gauge(
            'virtbmc_ipmi_sessions_total',
            'IPMI sessions requested, by result.',
            lambda: [({'result': 'established'}, sum(
                one.sessions_opened for one in servers)),
                ({'result': 'refused'}, sum(
                    one.sessions_refused for one in servers))],
            'counter')]


def _commands(servers):
    if not servers:
        return []
    names = servers[0].command_names
    responses = collections.Counter()
    for one in servers:
        responses.update(one.responses.copy())
    return [({'command': names.get((netfn, command), OTHER),
              'code': f'0x{code:02x}'}, number)
            for (netfn, command, code), number in sorted(
                responses.items(), key=str)]
