# SPDX-License-Identifier: Apache-2.0
"""Entries of the ConfigMap of a shard's members, which its pod reads.

An entry has all that the pod needs to serve a BMC, and no secrets: it names
Secrets, with their versions. A *reservation* records the slot alone; the pod
ignores it.
"""

from __future__ import annotations

import hashlib
import json
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import rbac

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import spec


class Rights(typing.NamedTuple):
    """What a pod needs rights for, to serve a BMC.

    :param secrets: their names
    :param redfish: whether it has Redfish
    :param display: whether clients can see the VM's display
    :param vm: name of the VM; '' for none, or if those are in a Role of the
        BMC, as the VM is in another namespace
    :param authorities: names of ConfigMaps with CA certificates
    """

    secrets: tuple[str, ...] = ()
    redfish: bool = False
    display: bool = False
    vm: str = ''
    authorities: tuple[str, ...] = ()


class Recorded(typing.NamedTuple):
    """What an entry says.

    :param uid: of the BMC
    :param slot: its number
    :param rights: without the VM
    """

    uid: str
    slot: int
    rights: Rights


class Report(typing.NamedTuple):
    """What a pod reports of a BMC.

    :param digest: of the entry
    :param problem: '' for none
    """

    digest: str
    problem: str


def entry(bmc: spec.Bmc, slot: int, auth: str, tls: str | None,
          proxy: config_map.Proxy | None = None,
          denied: config_map.Denied = config_map.Denied()) -> str:
    """Make an entry.

    :param slot: number of its slot
    :param auth: resourceVersion of the Secret with user name and password
    :param tls: the same of that with the certificate; None without one
    """
    redfish = None
    options = config_map.options(bmc, proxy, denied)
    if bmc.redfish.enabled:
        secret = deployments.tls_secret(bmc)
        redfish = {'http': bmc.redfish.both,
                   'tls': secret and {'secret': secret, 'version': tls}}
    return _text({
        'uid': bmc.uid, 'slot': slot, 'vm': str(bmc.vm),
        # Apart: until its upgrade, a pod may not know all of these options.
        'option_names': options.pop(config_map.OPTION_NAMES),
        'options': options,
        'redfish': redfish,
        'ipmi': {'port': deployments.client_port(bmc)} if bmc.ipmi else None,
        'account_management': bmc.account_management,
        'run_strategy': bmc.run_strategy,
        'auth': {'secret': deployments.auth_secret(bmc), 'version': auth}})


def reservation(uid: str, slot: int) -> str:
    """Return an entry that only records a slot."""
    return _text({'uid': uid, 'slot': slot})


def digest(text: str) -> str:
    """Return the digest of an entry, which the pod reports when it serves it.
    """
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def recorded(text: str) -> Recorded | None:
    """Read an entry.

    :param text: users may have written it
    :returns: None if it has no slot
    """
    content = _object(text)
    uid, slot = content.get('uid'), content.get('slot')
    if not isinstance(uid, str) or type(slot) is not int or slot < 0:
        return None
    redfish = content.get('redfish')
    tls = redfish.get('tls') if isinstance(redfish, dict) else None
    named = [part.get('secret') for part in (content.get('auth'), tls)
             if isinstance(part, dict)]
    options = content.get('options')
    if not isinstance(options, dict):
        options = {}
    return Recorded(uid, slot, Rights(
        _names(named), bool(redfish),
        bool(redfish and options.get(config_map.WEB_PAGE, True)),
        authorities=_names([options.get(config_map.CA_CONFIG_MAP)])))


def _names(values: list[object]) -> tuple[str, ...]:
    return tuple(name for name in values if isinstance(name, str))


def report(text: str) -> Report:
    """Read what a pod reports of a BMC.

    :param text: value in the ConfigMap that the pod writes
    """
    content = _object(text)
    return Report(str(content.get('digest', '')),
                  str(content.get('problem') or ''))


def vm(bmc: spec.Bmc) -> str:
    """Return `Rights.vm` of a BMC."""
    return bmc.vm.name if bmc.vm.namespace == bmc.namespace else ''


def rights(bmc: spec.Bmc) -> Rights:
    """Return what the entry of a BMC needs rights for."""
    return Rights(
        tuple(filter(None, (deployments.auth_secret(bmc),
                            deployments.tls_secret(bmc)))),
        bmc.redfish.enabled, bmc.redfish.display, vm(bmc),
        tuple(rbac.authorities(bmc)))


def _object(text: str) -> objects.Json:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _text(value: objects.Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(',', ':'))
