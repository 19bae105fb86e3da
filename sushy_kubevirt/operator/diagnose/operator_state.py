# SPDX-License-Identifier: Apache-2.0
"""Checks the operator: its Deployment, its Lease and its authority.

The operator may also run outside of the cluster, so the Lease decides whether
it works.
"""

from __future__ import annotations

import argparse
from collections import abc
import dataclasses
import datetime
import time
import typing

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

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.diagnose import reader as readers

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
    :param namespaces: those it serves; () for all
    :param auto_create: whether it creates BMCs
    :param uploads: whether its BMCs may upload images
    :param denies_hosts: whether it is told what BMCs may not reach
    """

    namespace: str
    account: str = naming.OPERATOR
    namespaces: tuple[str, ...] = ()
    auto_create: bool = False
    uploads: bool = False
    denies_hosts: bool = False


def settings(reader: readers.Reader, namespace: str) -> Settings:
    """Read the settings from the operator's Deployment.

    :param namespace: the operator's
    :returns: the defaults if there is no Deployment
    :raises: `errors.MachineError`
    """
    deployment = reader.get(bmc_resources.DEPLOYMENT, namespace,
                            naming.OPERATOR)
    if deployment is None:
        return Settings(namespace)
    pod = deployment['spec']['template']['spec']
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


def hosts(reader: readers.Reader,
          settings: Settings) -> abc.Iterator[findings.Finding]:
    """Check whether the operator knows the networks of Services."""
    if settings.denies_hosts or reader.client.serves(
            cluster_hosts.SERVICE_CIDR):
        yield findings.ok('ServicesDenied',
                          'BMCs may not reach the networks of Services.')
    else:
        yield findings.warning(
            'ServicesNotDenied',
            'Clients of BMCs may have them request URLs of Services: '
            f'{cluster_hosts.UNSERVED}.',
            'Name the network of Services by --denied-hosts, or deniedHosts '
            'in the values of the chart.')


def operator(reader: readers.Reader, namespace: str
             ) -> abc.Iterator[findings.Finding]:
    """Check the Deployment and the Lease.

    :param namespace: the operator's
    """
    deployment = reader.get(bmc_resources.DEPLOYMENT, namespace,
                            naming.OPERATOR)
    holder = _holder(reader, namespace)
    wanted = (deployment or {}).get('spec', {}).get('replicas', 1)
    if deployment is None and not holder:
        yield _missing(reader, namespace)
    elif (deployment is not None and wanted
          and not deployments.is_ready(deployment)):
        yield findings.problem(
            'OperatorNotReady',
            f'No pod of Deployment {namespace}/{naming.OPERATOR} is ready.'
            f"{deployments.failure_message(deployment.get('status') or {})}",
            f'kubectl --namespace {namespace} describe pods --selector '
            f'{_LABEL} shows why, and so does its log.')
    elif deployment is not None and wanted:
        yield findings.ok(
            'OperatorReady',
            f"{deployment['status'].get('readyReplicas')} of {wanted} pods of "
            f'Deployment {namespace}/{naming.OPERATOR} are ready.')
    if holder:
        yield findings.ok('LeaseHeld',
                          f'Replica {holder} holds the Lease and renews it.')
    elif deployment is not None:
        yield findings.problem(
            'LeaseNotHeld', f'No replica renews the Lease {namespace}/'
            f'{naming.OPERATOR}: BMCs keep working, and none is '
            'created, changed or restored.',
            'Start the operator; kubectl --namespace '
            f'{namespace} scale deployment {naming.OPERATOR} --replicas 2'
            if not wanted else "See the operator's log.")


def _missing(reader: readers.Reader, namespace: str) -> findings.Finding:
    """Look for an operator in other namespaces."""
    elsewhere = []
    try:
        elsewhere = [deployment['metadata']['namespace']
                     for deployment in reader.list(
                         bmc_resources.DEPLOYMENT, labels=_LABEL)]
    except errors.AccessDenied:
        pass
    return findings.problem(
        'OperatorMissing',
        f'There is no operator in namespace {namespace}: no Deployment '
        f'{naming.OPERATOR}, and no replica that renews its Lease.',
        'There is one in namespace '
        f"{', '.join(elsewhere)}: give --system-namespace." if elsewhere
        else installation.remedy())


def _holder(reader: readers.Reader, namespace: str) -> str | None:
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
    reader.progress(f'The Lease seems to be expired; waiting {seconds} s for '
                    'its renewal')
    end = time.monotonic() + reader.remaining(seconds)
    while time.monotonic() < end:
        time.sleep(_PAUSE)
        lease = reader.find(bmc_resources.LEASE, namespace, naming.OPERATOR)
        spec = (lease or {}).get('spec') or {}
        if spec.get('renewTime') != renewed:
            return spec.get('holderIdentity')
    return None


def _age(renewed: str) -> float:
    """Return seconds since a time of Kubernetes; -1 if it is not one."""
    try:
        then = datetime.datetime.fromisoformat(renewed)
        return (datetime.datetime.now(datetime.UTC) - then).total_seconds()
    except (TypeError, ValueError):
        return -1


def authority(reader: readers.Reader,
              namespace: str) -> abc.Iterator[findings.Finding]:
    """Check the certificate authority.

    :param namespace: the operator's
    """
    secret = reader.get(bmc_resources.SECRET, namespace, naming.AUTHORITY)
    subject = f'The certificate authority in Secret {namespace}/' + (
        naming.AUTHORITY)
    if secret is None:
        yield findings.ok(
            'AuthorityMissing', f'{subject} does not exist yet; the '
            'operator creates it for the first BMC that needs it.')
        return
    pair = secret_summary.pair(secret)
    fault = pki.fault(pair)
    if fault:
        yield findings.problem(
            'AuthorityUnusable', f'{subject} is unusable: {fault}.',
            'Correct it, or delete it: the operator then creates a new one, '
            'and clients need its certificate.')
        return
    begin, end = pki.validity(pair.certificate)
    now = datetime.datetime.now(datetime.UTC)
    if not begin <= now < end:
        yield findings.problem(
            'AuthorityExpired',
            f'{subject} is valid from {begin:%F} to {end:%F}.',
            'Delete it: the operator creates a new one, and clients need its '
            'certificate.')
        return
    yield findings.ok('AuthorityValid', f'{subject} is valid until '
                      f'{end:%F}.')
