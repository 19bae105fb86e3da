# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests that need a KubeVirt API.

``sandbox``       a running sandbox, and calls to its API and its guests
``case``          test cases whose tests share a sandbox
``polling``       requests that are repeated until their result is as expected
``process``       any program as a fixture; ``guard`` ends its descendants
``ports``         port numbers reserved against concurrent test runs
``certificates``  a server certificate, as files
``webserver``     a web server in a thread
``kubectl``       kubectl as one user; ``api_user`` mostly without kubectl
``machines``      a VirtualMachine with every class of boot device
``console``       the serial console of a VM
``qemu``          test cases with QEMU guests; ``images`` builds their disks
``server``        the API server in the test's own process, without TLS
``admission``     ValidatingAdmissionPolicies without a cluster
``imports``       imports between the packages of a project

The fixtures need this package's extra ``testing``.
"""
