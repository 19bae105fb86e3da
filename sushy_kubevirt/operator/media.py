# SPDX-License-Identifier: Apache-2.0
"""What of a BMC's virtual media the definition cannot check.

An emulator that is given a list of hosts that is none refuses to start; the
BMC's condition says it better than a pod that ends again and again.
"""

from sushy_kubevirt.machine.media import url_policy


def wrong_hosts(bmc):
    """What is wrong with ``virtualMedia.allowedHosts``.

    :param bmc: a `spec.Bmc`
    :returns: a sentence without full stop; '' for nothing
    """
    for entry in bmc.media.allowed_hosts:
        try:
            url_policy.network(entry)
        except ValueError as e:
            return str(e)
    return ''
