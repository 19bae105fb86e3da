# SPDX-License-Identifier: Apache-2.0
"""Power outlets: OpenStack's unpatched virtualpdu, with a driver for KubeVirt.

`config` checks its INI file, `driver` switches VMs, and `upstream` runs it.
"""
