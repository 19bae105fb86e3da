# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-operator diagnose``: checks a cluster and a BMC.

`command` is the command line and runs the checks in order. Each of the other
modules checks one subject: its functions take a `reader.Reader`, read only,
and yield `findings.Finding`. What the status of a BMC says is computed by
`conditions`, as in the operator. What an installation has to contain is read
from the manifests that are installed with this program (`manifests`).
"""
