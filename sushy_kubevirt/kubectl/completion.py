# SPDX-License-Identifier: Apache-2.0
"""Completion, by the protocol of kubectl's plugins.

kubectl (from 1.26 on) runs ``kubectl_complete-bmc`` with the words of the
command line, of which the last is to be completed. The answer is a line for
each candidate, with a tab before its description, and a last line with a colon
and a number (``ShellCompDirective`` of https://github.com/spf13/cobra).
"""

from __future__ import annotations

import argparse
from collections import abc

from sushy_kubevirt.kubectl import session as sessions

#: Directives: an error, none (files are candidates), and no files.
_ERROR, _FILES, _NO_FILES = 1, 0, 4

#: Arguments whose values are files.
_PATHS = 'kubeconfig', 'image'


def lines(parser: argparse.ArgumentParser,
          words: abc.Sequence[str]) -> list[str]:
    """Complete the last word.

    :param parser: of the whole command line
    """
    *before, last = words
    options = argparse.Namespace()
    awaited: argparse.Action | None = None
    left = list(parser._get_positional_actions())
    for word in before:
        if awaited is not None:
            setattr(options, awaited.dest, word)
            awaited = None
        elif word.startswith('-'):
            name, equals, value = word.partition('=')
            option = parser._option_string_actions.get(name)
            if option is not None and equals:
                setattr(options, option.dest, value)
            elif option is not None and option.nargs != 0:
                awaited = option
        elif left:
            positional = left.pop(0)
            if isinstance(positional, argparse._SubParsersAction):
                if word not in positional.choices:
                    break
                parser = positional.choices[word]
                left = list(parser._get_positional_actions())
    if awaited is None and last.startswith('-'):
        candidates = {name: (option.help or '') % vars(option) for name, option
                      in parser._option_string_actions.items()}
    elif action := awaited or next(iter(left), None):
        if action.dest in _PATHS:
            return [f':{_FILES}']
        try:
            candidates = _values(action, options)
        except Exception:
            # Whatever it is, the command itself says it better.
            return [f':{_ERROR}']
    else:
        candidates = {}
    return [f'{word}\t{text}' for word, text in candidates.items()
            if word.startswith(last)] + [f':{_NO_FILES}']


def _values(action: argparse.Action,
            options: argparse.Namespace) -> dict[str, str]:
    """Return the values of an argument, with descriptions."""
    if isinstance(action, argparse._SubParsersAction):
        return {choice.dest: choice.help or ''
                for choice in action._choices_actions}
    if action.choices:
        return dict.fromkeys(action.choices, '')
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import bmc_resources
    from sushy_kubevirt.remote import wording
    resources: dict[str, api_resources.AnyResource] = {
        'name': bmc_resources.BMC, 'vm': api_resources.VM}
    if action.dest not in resources:
        return {}
    session = sessions.Session(options)
    return {wording.printable(obj['metadata']['name']): ''
            for items, _ in session.client.pages(
                resources[action.dest], session.namespace, metadata_only=True)
            for obj in items}
