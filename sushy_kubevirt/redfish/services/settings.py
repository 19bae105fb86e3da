# SPDX-License-Identifier: Apache-2.0
"""The options of the kubevirt driver, checked by `emulator.settings`."""

from __future__ import annotations

import ipaddress
import sys
import typing
import uuid

from sushy_kubevirt.machine import options
from sushy_kubevirt.redfish.services.events import event_options

if typing.TYPE_CHECKING:
    from sushy_kubevirt.machine import machine as machine_

#: A network of `Settings.trusted_proxies`.
Network: typing.TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID, in any notation."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


class Settings(typing.NamedTuple):
    """The checked options.

    :param kubeconfig: path of a kubeconfig; None: $KUBECONFIG, the service
        account of the pod, ~/.kube/config
    :param context: name of a context in it; None for its current one
    :param namespaces: () for all; None for that of the kubeconfig's context
        or the service account
    :param label_selector: Kubernetes label selector
    :param vm: 'namespace/name' of the only VM that is served, or None
    :param allowed: UUIDs, 'namespace/name' and, with a single namespace,
        names; None for all
    :param power_off: whether systems may be switched off
    :param accounts: paths of files and folders with accounts; empty for
        access without authentication
    :param account_management: whether clients may create accounts
    :param session_timeout: seconds
    :param host_names: see `served_hosts.serves`
    :param state_secret: 'namespace/name' of the Secret that stores
        subscriptions and the services' settings; None for the default name
    :param service_ports: (protocol, port), as clients use them; empty for
        what the request shows
    :param web_page: whether the web page is served
    :param web_modules: path of the folder with xterm.js and noVNC
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] | None = None
    label_selector: str = ''
    vm: str | None = None
    allowed: frozenset[str] | None = None
    power_off: bool = True
    accounts: tuple[str, ...] = ()
    account_management: bool = True
    session_timeout: int = 1800
    trusted_proxies: tuple[Network, ...] = ()
    host_names: tuple[str, ...] = ()
    state_secret: str | None = None
    service_ports: tuple[tuple[str, int], ...] = ()
    web_page: bool = True
    web_modules: str = sys.prefix + '/share/sushy-kubevirt/web'
    events: event_options.EventOptions = event_options.EventOptions()
    machine: options.Options = options.Options()

    def allows(self, machine: machine_.Machine) -> bool:
        """Return whether clients may access a system and get its events."""
        if (self.allowed is None or machine.uuid in self.allowed
                or machine.qualified_name in self.allowed):
            return True
        # Names are allowed only with a single namespace. A UUID in the list is
        # not a name, even if a VM is named like one.
        return machine.name in self.allowed and not is_uuid(machine.name)
