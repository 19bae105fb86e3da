# SPDX-License-Identifier: Apache-2.0
"""Entries of the ConfigMap of a shard's members, which its pod reads.

An entry has all that the pod needs to serve a BMC, and no secrets: it names
Secrets, with their versions. A *reservation* records the slot alone; the pod
ignores it.
"""

from __future__ import annotations

import hashlib
import json

from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments


def entry(bmc, slot, auth, tls, proxy=None, denied=config_map.Denied()):
    """Make an entry.

    :param bmc: a `spec.Bmc`
    :param slot: number of its slot
    :param auth: resourceVersion of the Secret with user name and password
    :param tls: the same of that with the certificate; None without one
    :param proxy: `config_map.Proxy`, or None
    :param denied: `config_map.Denied`
    :returns: text
    """
    redfish = None
    if bmc.redfish.enabled:
        secret = deployments.tls_secret(bmc)
        redfish = {'http': bmc.redfish.both,
                   'tls': secret and {'secret': secret, 'version': tls}}
    return _text({
        'uid': bmc.uid, 'slot': slot, 'vm': str(bmc.vm),
        'options': config_map.options(bmc, proxy, denied),
        'redfish': redfish,
        'ipmi': {'port': deployments.client_port(bmc)} if bmc.ipmi else None,
        'account_management': bmc.account_management,
        'run_strategy': bmc.run_strategy,
        'auth': {'secret': deployments.auth_secret(bmc), 'version': auth}})


def reservation(uid, slot):
    """:returns: text of an entry that only records a slot"""
    return _text({'uid': uid, 'slot': slot})


def digest(text):
    """:returns: digest of an entry, which the pod reports when it serves it"""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def place(text):
    """Read whose an entry is.

    :param text: an entry; users may have written it
    :returns: (uid, slot); None if it has none
    """
    found = _object(text)
    uid, slot = found.get('uid'), found.get('slot')
    if isinstance(uid, str) and type(slot) is int and slot >= 0:
        return uid, slot
    return None


def recorded(text):
    """Read what an entry needs rights for.

    :param text: an entry; users may have written it
    :returns: (set of the names of Secrets, whether it has Redfish, whether
        clients can see the VM's display)
    """
    found = _object(text)
    redfish = found.get('redfish')
    tls = redfish.get('tls') if isinstance(redfish, dict) else None
    named = [part.get('secret') for part in (found.get('auth'), tls)
             if isinstance(part, dict)]
    options = found.get('options')
    page = not isinstance(options, dict) or options.get(
        config_map.WEB_PAGE, True)
    return ({one for one in named if isinstance(one, str)}, bool(redfish),
            bool(redfish and page))


def report(text):
    """Read what a pod reports of a BMC.

    :param text: value in the ConfigMap that the pod writes
    :returns: (digest of the entry, problem or '')
    """
    found = _object(text)
    return str(found.get('digest', '')), str(found.get('problem') or '')


def vm(bmc):
    """:returns: name of the VM whose rights are in a Role of the shard; '' if
        they are in a Role of the BMC, as the VM is in another namespace
    """
    return bmc.vm.name if bmc.vm.namespace == bmc.namespace else ''


def secrets(bmc):
    """:returns: set of the names of the Secrets that the pod reads"""
    return {deployments.auth_secret(bmc)} | set(
        filter(None, [deployments.tls_secret(bmc)]))


def _object(text):
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(value):
    return json.dumps(value, sort_keys=True, separators=(',', ':'))
