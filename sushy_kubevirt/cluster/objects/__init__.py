# SPDX-License-Identifier: Apache-2.0
"""Kubernetes objects of a cluster, made of what its file declares."""
