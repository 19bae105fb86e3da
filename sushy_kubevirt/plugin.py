# SPDX-License-Identifier: Apache-2.0
"""The import that config files of sushy-emulator use.

``from sushy_kubevirt import plugin`` and ``plugin.enable()`` are in users'
files; the implementation is :mod:`sushy_kubevirt.emulator.plugin`.
"""

from sushy_kubevirt.emulator.plugin import enable

__all__ = ['enable']
