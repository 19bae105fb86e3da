# SPDX-License-Identifier: Apache-2.0
"""The name by which config files of sushy-emulator find the plugin.

``from sushy_kubevirt import plugin`` and ``plugin.enable()`` are in users'
files; the code is in :mod:`sushy_kubevirt.emulator.plugin`.
"""

from sushy_kubevirt.emulator.plugin import enable

__all__ = ['enable']
