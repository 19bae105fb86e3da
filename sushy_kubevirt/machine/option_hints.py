# SPDX-License-Identifier: Apache-2.0
"""Names of options in messages to clients.

A client's request may be refused because of an option. What the option is
called depends on the service: a config file has options, a VirtualMachineBMC
has fields.
"""

from __future__ import annotations

from collections import abc
import typing


class Options(typing.Protocol):
    """Options of which messages to clients tell the names."""

    @property
    def names(self) -> abc.Mapping[str, str] | None:
        """Names of options in the service's configuration, by field; None
        for the fields' names."""


def hint(options: Options, field: str, text: str) -> str:
    """Build the part of a message that says which option to change.

    :param field: name of the option's field
    :param text: with ``{}`` in place of the option's name
    :returns: the text; '' if the option has no name, as it cannot be set
    """
    name = field if options.names is None else options.names.get(field)
    return text.format(name) if name else ''
