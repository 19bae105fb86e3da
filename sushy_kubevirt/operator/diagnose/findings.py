# SPDX-License-Identifier: Apache-2.0
"""The result of a check, and how results are printed."""

from __future__ import annotations

from collections import abc
import dataclasses
import enum
import functools
import json
import textwrap
import typing

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import errors


class Status(enum.Enum):
    """What a finding means."""

    OK = 'ok'
    """The checked thing is as it should be."""

    WARNING = 'warning'
    """Something works in part only, or will cease to work."""

    PROBLEM = 'problem'
    """Something does not work."""

    UNKNOWN = 'unknown'
    """It could not be checked, for instance for want of a right."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding.

    :param reason: one word for programs; of a condition its reason
    :param message: sentences without a secret
    :param remedy: sentences that say what to do; '' if there is nothing to
        do, or the message says it
    :param area: what was checked, such as ``KubeVirt``; '' for what the check
        is about
    """

    status: Status
    reason: str
    message: str
    remedy: str = ''
    area: str = ''


ok = functools.partial(Finding, Status.OK)
warning = functools.partial(Finding, Status.WARNING)
problem = functools.partial(Finding, Status.PROBLEM)
unknown = functools.partial(Finding, Status.UNKNOWN, 'NotChecked')


def denied(error: errors.AccessDenied) -> Finding:
    """Report that a right to read is missing."""
    where = (f'in namespace {error.namespace}' if error.namespace
             else 'in all namespaces')
    return unknown(
        f'Not checked: this user may not {error.verb} '
        f'{error.resource} {where}.', "Use an administrator's kubeconfig.")


#: Columns of the text, and indentation of its sentences.
_WIDTH = 79
_INDENT = ' ' * 10

#: Characters of a message that are shown: some contain what users of a
#: namespace have written.
_MOST = 2000


def printable(text: str) -> str:
    """Replace what would control a terminal, or cannot be encoded.

    :param text: may contain anything
    :returns: one line
    """
    return ''.join(
        character if character.isprintable()
        else ' ' if character.isspace() else '\ufffd'
        for character in text)


def text(finding: Finding) -> str:
    """Format a finding for people, in several lines."""
    message = printable(finding.message)
    if len(message) > _MOST:
        message = message[:_MOST] + ' …'
    lines = textwrap.wrap(
        f'{finding.area}: {message}', _WIDTH,
        initial_indent=f'{finding.status.value:<10}',
        subsequent_indent=_INDENT, break_on_hyphens=False,
        break_long_words=False)
    if finding.remedy:
        lines += textwrap.wrap(
            printable(finding.remedy), _WIDTH, initial_indent=_INDENT + '-> ',
            subsequent_indent=_INDENT + '   ', break_on_hyphens=False,
            break_long_words=False)
    return '\n'.join(lines)


def totals(results: abc.Collection[Finding]) -> dict[str, int]:
    """Count findings by the values of their status."""
    return {status.value: sum(finding.status is status for finding in results)
            for status in Status}


def summary(results: abc.Collection[Finding]) -> str:
    """Return last line of the text."""
    counts = totals(results)
    return (f"{_count(counts['problem'], 'problem')}, "
            f"{_count(counts['warning'], 'warning')}, "
            f"{counts['unknown']} not checked, {counts['ok']} ok")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def as_json(results: abc.Collection[Finding],
            head: abc.Mapping[str, typing.Any]) -> str:
    """Format findings for programs.

    :param head: further members
    """
    return json.dumps({
        **head, 'summary': totals(results),
        'findings': [{'area': finding.area, **dataclasses.asdict(finding),
                      'status': finding.status.value}
                     for finding in results]}, indent=2)
