# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API server in one process, for development and tests.

It keeps objects in memory and speaks the API as ``kubectl`` and the client
libraries expect it.  It knows nothing of KubeVirt: kinds with their
schemas and admission rules, and the verbs under an object, are registered
from outside (``kubevirt_sandbox.kubevirt``).
"""
