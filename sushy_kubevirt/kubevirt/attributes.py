# SPDX-License-Identifier: Apache-2.0
"""What a BMC remembers for its machine that KubeVirt has no field for.

BIOS attributes and the indicator's state, kept in annotations of the VM.
"""


def get(vm):
    """:returns: dict of BIOS attributes"""


def set(machine, values):
    """Change some BIOS attributes."""


def reset(machine):
    """Bring the BIOS attributes back to their defaults."""


def indicator(vm):
    """:returns: 'Lit', 'Blinking' or 'Off'"""


def set_indicator(machine, state):
    """Switch the indicator."""
