# SPDX-License-Identifier: Apache-2.0
"""Power outlets: `driver` runs virtualpdu by the INI file that `config` reads.
"""
