# SPDX-License-Identifier: Apache-2.0
"""Accounts, sessions and events, which sushy-emulator lacks.

Independent of Flask and sushy-tools; `redfish.protocol` and
`redfish.resources` translate between HTTP and these services.
"""
