# SPDX-License-Identifier: Apache-2.0
"""What a BMC has and the emulator lacks: accounts, sessions, events.

Knows neither Flask nor sushy-tools; `redfish/` translates.
"""
