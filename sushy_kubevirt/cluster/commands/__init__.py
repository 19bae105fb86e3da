# SPDX-License-Identifier: Apache-2.0
"""The commands of ``sushy-kubevirt-cluster``, a module each.

They are imported whenever one of them runs. What takes long to import, as
openstacksdk does, is therefore imported by the functions that need it.
"""
