# SPDX-License-Identifier: Apache-2.0
"""Power of a node, through its BMC, by Redfish."""

from __future__ import annotations

import tempfile

from sushy_kubevirt.cluster.ironic import nodes
from sushy_kubevirt.cluster import problems

#: Actions of the command line, and Redfish's ``ResetType``
#: (Resource.v1_20_1), as far as KubeVirt has them.
ACTIONS = {'on': 'On', 'off': 'ForceOff', 'soft-off': 'GracefulShutdown',
           'reboot': 'ForceRestart', 'soft-reboot': 'GracefulRestart',
           'pause': 'Pause', 'resume': 'Resume'}

#: Attempts to reach a BMC, and seconds between them: its pod may be starting.
_ATTEMPTS, _DELAY = 3, 2

_CONNECT_SECONDS = 10


def run(node: str, bmc: nodes.Bmc, action: str | None = None) -> str:
    """Request a change of the power state, and read it.

    :param action: a key of `ACTIONS`; None to change nothing
    :returns: Redfish's ``PowerState``, such as ``On`` or ``PoweringOff``
    :raises: `problems.BmcUnavailable`
    """
    # Imported here, as most commands do without.
    import requests
    import sushy
    from sushy import auth
    server = nodes.host_and_port(bmc.address, bmc.redfish_port, 443)
    with tempfile.NamedTemporaryFile('w', suffix='.pem') as ca:
        ca.write(bmc.ca or '')
        ca.flush()
        try:
            system = sushy.Sushy(
                f'https://{server}', verify=ca.name if bmc.ca else True,
                # No session, which would have to be deleted.
                auth=auth.BasicAuth(bmc.username, bmc.password),
                server_side_retries=_ATTEMPTS,
                server_side_retries_delay=_DELAY,
                connect_timeout=_CONNECT_SECONDS).get_system(nodes.SYSTEM_ID)
            if action:
                system.reset_system(sushy.ResetType(ACTIONS[action]))
                system.refresh()
            return system.power_state.value
        except (sushy.exceptions.SushyError,
                requests.exceptions.RequestException) as error:
            raise problems.BmcUnavailable(
                node, _reason(error, server, bmc)) from error


def _reason(error: Exception, server: str, bmc: nodes.Bmc) -> str:
    import sushy
    text = str(error)
    if 'CERTIFICATE_VERIFY_FAILED' in text:
        what = text.partition('verify failed: ')[2].partition(' (_ssl')[0]
        return (f'its certificate at {server} is not to be trusted: {what}. '
                'The operator makes and renews it: see "kubectl describe '
                'vmbmc"')
    if isinstance(error, sushy.exceptions.AccessError):
        return (f'it refuses the credentials of Secret {bmc.secret}. Those '
                'of a changed Secret are in use after a minute')
    if isinstance(error, sushy.exceptions.HTTPError):
        # Its text repeats the response.
        detail = error.detail or text
        return f'HTTP status {error.status_code}: {detail}'
    if isinstance(error, sushy.exceptions.ConnectionError):
        return (f'{server} cannot be reached from here: {_cause(error)}. An '
                'address of a Service of type ClusterIP can be reached in the '
                'Kubernetes cluster only; "bmc: {service: {type: '
                'LoadBalancer}}" of its node type gives it another')
    return text


def _cause(error: Exception) -> str:
    # The innermost reason: "[Errno 111] Connection refused".
    text = str(error)
    return text.rpartition(': ')[2].strip(')"\' ') or text
