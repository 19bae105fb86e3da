# SPDX-License-Identifier: Apache-2.0
"""The BMC itself: its stored state and its log, for every protocol."""
