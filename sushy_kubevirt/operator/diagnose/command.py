# SPDX-License-Identifier: Apache-2.0
"""The command line of ``sushy-kubevirt-operator diagnose``."""

from __future__ import annotations

import argparse
from collections import abc
import dataclasses
import os
import re
import sys
import typing

from sushy_kubevirt.kube import client
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator.diagnose import bmc as bmcs
from sushy_kubevirt.operator.diagnose import certificates
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator.diagnose import images
from sushy_kubevirt.operator.diagnose import installation
from sushy_kubevirt.operator.diagnose import manifests
from sushy_kubevirt.operator.diagnose import network
from sushy_kubevirt.operator.diagnose import operator_state
from sushy_kubevirt.operator.diagnose import reader as readers
from sushy_kubevirt.operator.diagnose import rights
from sushy_kubevirt.operator.diagnose import storage
from sushy_kubevirt.operator.diagnose import versions

_PROGRAM = f'{command_line.PROGRAM} {command_line.DIAGNOSE}'

#: Seconds for all checks together.
TIMEOUT = 120

_USER_AGENT = 'sushy-kubevirt-diagnose'


P = typing.ParamSpec('P')


def main(arguments: abc.Sequence[str],
         environ: abc.Mapping[str, str] = os.environ) -> int:
    """Check a cluster, and a BMC.

    :param arguments: without the subcommand's
    :param environ: ``POD_NAMESPACE`` is the default of ``--system-namespace``
    :returns: exit status: 0 without problems, 141 when the reader of the
        output has ended, as a shell reports SIGPIPE, else 1
    :raises: `errors.ConfigError`
    """
    given = parser(environ).parse_args(arguments)
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # What is still buffered is not written when the program ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(given: argparse.Namespace) -> int:
    access = connection.Connection.from_options(
        given.kubeconfig, given.context)
    with_text = given.output == 'text'
    run = Run(readers.Reader(
        client.Client(access, command_line.CLIENT_OPTIONS, _USER_AGENT),
        given.timeout, _progress),
        _print if with_text else lambda finding: None)
    if with_text:
        print(f'{_PROGRAM}, version {command_line.version()}, of '
              f'{findings.printable(access.server)}', flush=True)
    namespace, _, name = (given.bmc or '').rpartition('/')
    run.cluster(given.system_namespace, not given.bmc)
    if given.bmc:
        run.bmc(given.namespace or namespace or access.namespace
                or 'default', name)
    if with_text:
        print(findings.summary(run.findings))
    else:
        print(findings.as_json(run.findings, {
            'version': command_line.version(), 'server': access.server,
            'bmc': given.bmc}))
    return 1 if any(finding.status is findings.Status.PROBLEM
                    for finding in run.findings) else 0


def parser(environ: abc.Mapping[str, str]) -> argparse.ArgumentParser:
    """Make the parser of the command line.

    :param environ: ``POD_NAMESPACE`` is the default of ``--system-namespace``
    """
    result = argparse.ArgumentParser(
        prog=_PROGRAM, description=(
            'Checks what BMCs need: versions of Kubernetes, KubeVirt and CDI, '
            'feature gates, storage, the installation, access rights; and of '
            'a BMC its conditions, its network path and its certificate. '
            'Prints what it finds, and what to do. Changes nothing. Needs an '
            "administrator's rights; what it may not read is reported as "
            'unknown. Exit status: 0 without problems, 1 with some.'))
    result.add_argument(
        'bmc', metavar='[NAMESPACE/]BMC', nargs='?', type=_bmc,
        help='VirtualMachineBMC to check (default: list those that are not '
        'ready)')
    result.add_argument(
        '--namespace', '-n', metavar='NAME', type=command_line.namespace,
        help='namespace of the BMC (default: that of the kubeconfig)')
    command_line.add_cluster(result)
    command_line.add_system_namespace(result, environ)
    result.add_argument(
        '--output', '-o', choices=('text', 'json'), default='text',
        help='(default: %(default)s)')
    result.add_argument(
        '--timeout', metavar='S', type=_seconds, default=TIMEOUT,
        help='seconds for all checks together (default: %(default)s)')
    return result


def _bmc(text: str) -> str:
    if re.fullmatch(r'([a-z0-9][-a-z0-9]*/)?[a-z0-9][-.a-z0-9]*', text):
        return text
    raise argparse.ArgumentTypeError(f'{text!r} is not a name of a BMC')


def _seconds(text: str) -> int:
    if re.fullmatch('[1-9][0-9]{0,3}', text):
        return int(text)
    raise argparse.ArgumentTypeError(
        f'{text!r} is not a whole number of seconds, 1 to 9999')


def _print(finding: findings.Finding) -> None:
    print(findings.text(finding), flush=True)


def _progress(sentence: str) -> None:
    print(f'{findings.printable(sentence)} …', file=sys.stderr, flush=True)


class Run:
    """One run of the checks.

    :param report: called with each finding
    """

    def __init__(self, reader: readers.Reader,
                 report: abc.Callable[[findings.Finding], None]) -> None:
        self._reader = reader
        self._report = report
        self._settings: operator_state.Settings | None = None
        self.findings: list[findings.Finding] = []

    def cluster(self, system_namespace: str, with_bmcs: bool) -> None:
        """Check the cluster and the installation.

        :param system_namespace: the operator's
        :param with_bmcs: whether to look for BMCs that are not ready
        """
        reader = self._reader
        if not self._check(versions.KUBERNETES, versions.kubernetes, reader):
            return
        self._check(versions.KUBEVIRT, versions.kubevirt, reader)
        self._check(versions.CDI, versions.cdi, reader)
        self._check(storage.AREA, storage.default_class, reader)
        self._check(installation.DEFINITION, installation.definition, reader)
        self._check(installation.POLICIES, installation.policies, reader)
        self._check(operator_state.AREA, operator_state.operator, reader,
                    system_namespace)
        self._check(operator_state.AREA, operator_state.authority, reader,
                    system_namespace)
        self._check(images.AREA, images.operator, reader, system_namespace)
        settings = operator_state.Settings(system_namespace)
        try:
            settings = operator_state.settings(reader, system_namespace)
        except errors.MachineError as e:
            self._add(operator_state.AREA, findings.unknown(
                f'Its options are not known: {e}'))
        self._settings = settings
        self._check(operator_state.AREA, operator_state.hosts, reader,
                    settings)
        self._check(rights.AREA, rights.operator, reader, settings)
        if with_bmcs and self._has_definition():
            self._check(bmcs.AREA, bmcs.not_ready, reader, settings)

    def bmc(self, namespace: str, name: str) -> None:
        """Check one BMC, after `cluster`.

        :param namespace: of the BMC
        :param name: of the BMC
        """
        if self._settings is None or not self._has_definition():
            return
        reader, area = self._reader, f'BMC {namespace}/{name}'
        checkable: list[bmcs.Bmc] = []
        self._check(area, bmcs.read, reader, namespace, name,
                    checkable.append)
        if not checkable:
            return
        [bmc] = checkable
        self._check(area, bmcs.status, bmc)
        self._check(area, images.bmc, bmc)
        self._check(area, rights.bmc, reader, bmc.spec, bmc.account,
                    self._settings)
        if bmc.spec.redfish.enabled:
            self._check(area, storage.of_bmc, reader, bmc.spec.media)
        if bmc.service is None:
            return
        self._check(area, network.backends, reader, bmc)
        self._check(area, network.protocols, reader, bmc,
                    self._settings.namespace)
        if bmc.spec.redfish.enabled and not bmc.spec.redfish.plain:
            self._check(area, certificates.check, reader, bmc)

    def _has_definition(self) -> bool:
        return not any(finding.reason == installation.MISSING
                       for finding in self.findings)

    def _add(self, area: str, finding: findings.Finding) -> None:
        if not finding.area:
            finding = dataclasses.replace(finding, area=area)
        self.findings.append(finding)
        self._report(finding)

    def _check(self, area: str,
               function: abc.Callable[P, abc.Iterable[findings.Finding]],
               *args: P.args, **kwargs: P.kwargs) -> bool:
        """Add the findings of a check.

        :returns: whether the API server answers
        """
        try:
            for finding in function(*args, **kwargs):
                self._add(area, finding)
        except errors.AccessDenied as e:
            self._add(area, findings.denied(e))
        except errors.Unavailable as e:
            self._add(area, findings.problem(
                'NotAnswered', f'Not checked: {e}',
                'Check the kubeconfig, the network and the API server.'))
            return False
        except manifests.Missing as e:
            self._add(area, findings.unknown(f'Not checked: {e}.', e.remedy))
        except BrokenPipeError:
            # Of the output: the client has errors of its own.
            raise
        except (errors.MachineError, OSError) as e:
            self._add(area, findings.unknown(f'Not checked: {e}'))
        except Exception as e:
            # An unexpected object hides no other finding. The text of the
            # exception may contain data of a Secret.
            self._add(area, findings.unknown(
                f'Not checked: {type(e).__name__} in '
                f'{function.__module__}.{function.__name__}.',
                'This is a bug of sushy-kubevirt: report it.'))
        return True
