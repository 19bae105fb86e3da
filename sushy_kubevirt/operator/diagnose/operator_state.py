# SPDX-License-Identifier: Apache-2.0
"""Checks the operator: its Deployment, its Lease and its authority.

The operator may also run outside of the cluster, so the Lease decides whether
it works.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import time

from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import cluster_hosts
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import installation
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary

AREA = 'Operator'

#: Label of the operator's Deployment (etc/kubernetes/base).
_LABEL = f'app.kubernetes.io/name={naming.OPERATOR}'

#: Seconds between two looks at the Lease.
_PAUSE = 1


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the other checks need to know about the installed operator.

    :param namespace: its own
    :param account: name of its ServiceAccount
    :param namespaces: tuple of the namespaces it serves; () for all
    :param auto_create: whether it creates BMCs
    :param uploads: whether its BMCs may upload images
    :param denies_hosts: whether it is told what BMCs may not reach
    """

    namespace: str
    account: str = naming.OPERATOR
    namespaces: tuple = ()
    auto_create: bool = False
    uploads: bool = False
    denies_hosts: bool = False


def settings(reader, namespace):
    """Read the settings from the operator's Deployment.

    :param reader: a `reader.Reader`
    :param namespace: the operator's
    :returns: `Settings`; the defaults if there is no Deployment
    :raises: `errors.MachineError`
    """
    found = reader.get(bmc_resources.DEPLOYMENT, namespace, naming.OPERATOR)
    if found is None:
        return Settings(namespace)
    pod = found['spec']['template']['spec']
    words = [word for container in pod['containers']
             for word in container.get('args') or ()]
    # These options alone: others name files that are not here.
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument('--namespace', action='append', default=[])
    parser.add_argument('--auto-create')
    parser.add_argument('--upload-proxy-url')
    parser.add_argument('--denied-hosts')
    try:
        given, _ = parser.parse_known_args(words)
    except argparse.ArgumentError as e:
        raise errors.ConfigError(
            f'args of Deployment {namespace}/{naming.OPERATOR}: {e}'
        ) from None
    return Settings(
        namespace, pod.get('serviceAccountName') or naming.OPERATOR,
        tuple(dict.fromkeys(given.namespace)), bool(given.auto_create),
        bool(given.upload_proxy_url), bool(given.denied_hosts))


def hosts(reader, settings):
    """Check whether the operator knows the networks of Services.

    :param reader: a `reader.Reader`
    :param settings: `Settings`
    :returns: iterator of `findings.Finding`
    """
    if settings.denies_hosts or reader.serves_kind(
            cluster_hosts.SERVICE_CIDR):
        yield findings.ok(AREA, 'ServicesDenied',
                          'BMCs may not reach the networks of Services.')
    else:
        yield findings.warning(
            AREA, 'ServicesNotDenied',
            'Clients of BMCs may have them request URLs of Services: '
            f'{cluster_hosts.UNSERVED}.',
            'Name the network of Services by --denied-hosts, or deniedHosts '
            'in the values of the chart.')


def operator(reader, namespace, progress):
    """Check the Deployment and the Lease.

    :param reader: a `reader.Reader`
    :param namespace: the operator's
    :param progress: function of a sentence, called before a slow step
    :returns: iterator of `findings.Finding`
    """
    found = reader.get(bmc_resources.DEPLOYMENT, namespace, naming.OPERATOR)
    holder = _holder(reader, namespace, progress)
    wanted = (found or {}).get('spec', {}).get('replicas', 1)
    if found is None and not holder:
        yield _missing(reader, namespace)
    elif found is not None and wanted and not deployments.is_ready(found):
        yield findings.problem(
            AREA, 'OperatorNotReady',
            f'No pod of Deployment {namespace}/{naming.OPERATOR} is ready.'
            f"{deployments.failure_message(found.get('status') or {})}",
            f'kubectl --namespace {namespace} describe pods --selector '
            f'{_LABEL} shows why, and so does its log.')
    elif found is not None and wanted:
        yield findings.ok(
            AREA, 'OperatorReady',
            f"{found['status'].get('readyReplicas')} of {wanted} pods of "
            f'Deployment {namespace}/{naming.OPERATOR} are ready.')
    if holder:
        yield findings.ok(AREA, 'LeaseHeld',
                          f'Replica {holder} holds the Lease and renews it.')
    elif found is not None:
        yield findings.problem(
            AREA, 'LeaseNotHeld',
            f'No replica renews the Lease {namespace}/'
            f'{naming.OPERATOR}: BMCs keep working, and none is '
            'created, changed or restored.',
            'Start the operator; kubectl --namespace '
            f'{namespace} scale deployment {naming.OPERATOR} --replicas 2'
            if not wanted else "See the operator's log.")


def _missing(reader, namespace):
    """Look for an operator in other namespaces."""
    elsewhere = []
    try:
        elsewhere = [one['metadata']['namespace'] for one in reader.list(
            bmc_resources.DEPLOYMENT, labels=_LABEL)]
    except errors.AccessDenied:
        pass
    return findings.problem(
        AREA, 'OperatorMissing',
        f'There is no operator in namespace {namespace}: no Deployment '
        f'{naming.OPERATOR}, and no replica that renews its Lease.',
        'There is one in namespace '
        f"{', '.join(elsewhere)}: give --system-namespace." if elsewhere
        else installation.remedy())


def _holder(reader, namespace, progress):
    """Find the replica that renews the Lease.

    Clocks need not agree: a Lease that seems to be expired is watched for
    the time in which it would be renewed.

    :returns: its name, or None
    """
    lease = reader.find(bmc_resources.LEASE, namespace, naming.OPERATOR)
    spec = (lease or {}).get('spec') or {}
    if not spec.get('holderIdentity'):
        return None
    seconds = spec.get('leaseDurationSeconds') or command_line.LEASE_SECONDS
    renewed = spec.get('renewTime') or ''
    if 0 <= _age(renewed) < seconds:
        return spec['holderIdentity']
    progress(f'The Lease seems to be expired; waiting {seconds} s for its '
             'renewal')
    end = time.monotonic() + reader.remaining(seconds)
    while time.monotonic() < end:
        time.sleep(_PAUSE)
        lease = reader.find(bmc_resources.LEASE, namespace, naming.OPERATOR)
        spec = (lease or {}).get('spec') or {}
        if spec.get('renewTime') != renewed:
            return spec.get('holderIdentity')
    return None


def _age(renewed):
    """:returns: seconds since a time of Kubernetes; -1 if it is not one"""
    try:
        then = datetime.datetime.fromisoformat(renewed)
        return (datetime.datetime.now(datetime.UTC) - then).total_seconds()
    except (TypeError, ValueError):
        return -1


def authority(reader, namespace):
    """Check the certificate authority.

    :param reader: a `reader.Reader`
    :param namespace: the operator's
    :returns: iterator of `findings.Finding`
    """
    secret = reader.get(bmc_resources.SECRET, namespace, naming.AUTHORITY)
    what = f'The certificate authority in Secret {namespace}/' + (
        naming.AUTHORITY)
    if secret is None:
        yield findings.ok(
            AREA, 'AuthorityMissing', f'{what} does not exist yet; the '
            'operator creates it for the first BMC that needs it.')
        return
    pair = secret_summary.pair(secret)
    fault = pki.fault(pair)
    if fault:
        yield findings.problem(
            AREA, 'AuthorityUnusable', f'{what} is unusable: {fault}.',
            'Correct it, or delete it: the operator then creates a new one, '
            'and clients need its certificate.')
        return
    begin, end = pki.validity(pair.certificate)
    now = datetime.datetime.now(datetime.UTC)
    if not begin <= now < end:
        yield findings.problem(
            AREA, 'AuthorityExpired',
            f'{what} is valid from {begin:%F} to {end:%F}.',
            'Delete it: the operator creates a new one, and clients need its '
            'certificate.')
        return
    yield findings.ok(AREA, 'AuthorityValid', f'{what} is valid until '
                      f'{end:%F}.')
