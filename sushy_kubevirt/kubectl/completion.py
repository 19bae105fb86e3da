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

#: Arguments whose values are names of objects, or of files.
_BMCS, _VMS, _PATHS = 'name', 'vm', ('kubeconfig', 'image')


def lines(parser: argparse.ArgumentParser, common: argparse.ArgumentParser,
          words: abc.Sequence[str]) -> list[str]:
    """Complete the last word.

    :param parser: of the whole command line
    :param common: of the options of all commands
    """
    *before, last = words
    positionals, awaited, parser = _position(parser, before)
    if awaited is None and last.startswith('-'):
        return _answer({option: action.help or '' for action
                        in parser._actions for option
                        in action.option_strings}, last)
    if awaited is None and positionals:
        awaited = positionals[0]
    if awaited is None:
        return _answer({}, last)
    if isinstance(awaited, argparse._SubParsersAction):
        return _answer({choice.dest: choice.help or '' for choice
                        in awaited._choices_actions}, last)
    if awaited.choices:
        return _answer(dict.fromkeys(map(str, awaited.choices), ''), last)
    if awaited.dest in _PATHS:
        return [f':{_FILES}']
    try:
        options = common.parse_known_args(before, argparse.Namespace(
            namespace=None, context=None, kubeconfig=None))[0]
        return _answer(_names(sessions.Session(options), awaited.dest), last)
    except Exception:
        # Whatever it is, the command itself says it better.
        return [f':{_ERROR}']


def _position(parser: argparse.ArgumentParser, words: abc.Iterable[str]
              ) -> tuple[list[argparse.Action], argparse.Action | None,
                         argparse.ArgumentParser]:
    """Find out what the next word is.

    :returns: positional arguments that are left, the option whose value is
        awaited, and the parser of the command
    """
    positionals = _positionals(parser)
    awaited: argparse.Action | None = None
    for word in words:
        if awaited is not None:
            awaited = None
        elif word.startswith('-'):
            option = parser._option_string_actions.get(word)
            if option is not None and option.nargs != 0:
                awaited = option
        elif positionals:
            action = positionals.pop(0)
            if isinstance(action, argparse._SubParsersAction):
                if word not in action.choices:
                    return [], None, parser
                parser = action.choices[word]
                positionals = _positionals(parser)
    return positionals, awaited, parser


def _positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not action.option_strings]


def _names(session: sessions.Session, argument: str) -> dict[str, str]:
    """List objects of the namespace with a description."""
    from sushy_kubevirt.kube import api_resources
    from sushy_kubevirt.operator import bmc_resources
    from sushy_kubevirt.operator import spec
    if argument == _VMS:
        return {vm['metadata']['name']: '' for items, _ in
                session.client.pages(api_resources.VM, session.namespace)
                for vm in items}
    if argument != _BMCS:
        return {}
    return {bmc['metadata']['name']: f'VM {spec.read(bmc).vm.name}'
            for items, _ in session.client.pages(
                bmc_resources.BMC, session.namespace) for bmc in items}


def _answer(candidates: abc.Mapping[str, str], beginning: str) -> list[str]:
    return [f'{word}\t{text}'.rstrip('\t') for word, text
            in candidates.items() if word.startswith(beginning)
            ] + [f':{_NO_FILES}']
