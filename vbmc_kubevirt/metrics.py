# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of IPMI."""

from sushy_kubevirt.pod import prometheus

#: Label of commands that the BMC does not support.
OTHER = 'other'


def of(bmc_server):
    """Collect the metrics of a BMC.

    :param bmc_server: a started `bmc_server.BmcServer`
    :returns: list of `prometheus.Gauge`
    """
    server = bmc_server.server
    return [
        prometheus.Gauge(
            'virtbmc_ipmi_commands_total',
            'IPMI commands answered, by name and completion code.',
            lambda: _commands(server), 'counter'),
        prometheus.Gauge(
            'virtbmc_ipmi_sessions', 'IPMI sessions that are established.',
            lambda: server.sessions),
        prometheus.Gauge(
            'virtbmc_ipmi_sessions_total',
            'IPMI sessions requested, by result.',
            lambda: [({'result': 'established'}, server.sessions_opened),
                     ({'result': 'refused'}, server.sessions_refused)],
            'counter')]


def _commands(server):
    names = server.command_names
    return [({'command': names.get((netfn, command), OTHER),
              'code': f'0x{code:02x}'}, number)
            for (netfn, command, code), number in sorted(
                server.responses.copy().items(), key=str)]
