# SPDX-License-Identifier: Apache-2.0
"""Which of KubeVirt's optional features this cluster has switched on."""


class Gates:
    """The KubeVirt object's feature gates and version."""

    #: KubeVirt's version, such as ``v1.9.0``; None while it is not known.
    version = None

    def enabled(self, name):
        """Whether a feature gate is on; asks the API if the last answer is
        older than Options.gates_seconds. False if it may not be asked.

        :param name: such as ``RebootPolicy``
        """
