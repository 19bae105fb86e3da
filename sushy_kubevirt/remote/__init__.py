# SPDX-License-Identifier: Apache-2.0
"""The operator's BMCs as their users reach them: addresses, credentials,
Redfish through the API server."""
