# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API server in one process, for development and tests.

It keeps objects in memory and speaks the API as ``kubectl`` and the client
libraries expect it. It is independent of KubeVirt:
``kubevirt_sandbox.kubevirt`` registers kinds with their schemas and admission
rules, and subresources.
"""
