# SPDX-License-Identifier: Apache-2.0
"""``kubectl bmc``: a plugin of kubectl for users of BMCs in a namespace."""
