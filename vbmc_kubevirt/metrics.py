# SPDX-License-Identifier: Apache-2.0
"""What a BMC of its own process tells Prometheus about itself."""

from sushy_kubevirt.pod import prometheus
from vbmc_kubevirt.ipmi import constants

_APP, _CHASSIS = constants.APPLICATION, constants.CHASSIS

#: The commands that are served, as the specification names them (appendix G).
COMMANDS = {
    (_APP, 0x01): 'Get Device ID',
    (_APP, 0x02): 'Cold Reset',
    (_APP, 0x37): 'Get System GUID',
    (_APP, 0x38): 'Get Channel Authentication Capabilities',
    (_APP, 0x39): 'Get Session Challenge',
    (_APP, 0x3A): 'Activate Session',
    (_APP, 0x3B): 'Set Session Privilege Level',
    (_APP, 0x3C): 'Close Session',
    (_APP, 0x48): 'Activate Payload',
    (_APP, 0x49): 'Deactivate Payload',
    (_APP, 0x54): 'Get Channel Cipher Suites',
    (_CHASSIS, 0x01): 'Get Chassis Status',
    (_CHASSIS, 0x02): 'Chassis Control',
    (_CHASSIS, 0x06): 'Set Power Restore Policy',
    (_CHASSIS, 0x08): 'Set System Boot Options',
    (_CHASSIS, 0x09): 'Get System Boot Options',
}

#: What is not served goes by this name, whatever it was.
OTHER = 'other'


def of(entry):
    """The metrics of a BMC, at this moment.

    :param entry: a `serving.Entry`
    :returns: list of `prometheus.Gauge`
    """
    server = entry.server
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
            'IPMI sessions asked for, by what became of them.',
            lambda: [({'result': 'established'}, server.opened),
                     ({'result': 'refused'}, server.refused)], 'counter'),
        *(prometheus.cluster(entry.cluster) if entry.cluster else ()),
        *prometheus.process()]


def _commands(server):
    return [({'command': COMMANDS.get((netfn, command), OTHER),
              'code': f'0x{code:02x}'}, number)
            for (netfn, command, code), number in sorted(
                server.answers.copy().items(), key=str)]
