# SPDX-License-Identifier: Apache-2.0
"""A cluster's nodes in the formats of tools that enrol or use them.

Each module has `TEXT`, what the format is for, and `make`, which makes the
text of the file. Passwords are in those formats only that need them.
"""
