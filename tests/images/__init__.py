# SPDX-License-Identifier: Apache-2.0
"""The images, built by a container engine and run by a container runtime.

They are a separate suite, ``tools/test images``, because they need root and
packages that nothing else needs.
"""
