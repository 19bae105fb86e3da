# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests that need a KubeVirt API.

``sandbox``       a running sandbox, and calls to its API and its guests
``case``          test cases whose tests share a sandbox
``process``       any program as a fixture; ``guard`` ends what it started
``ports``         ports that two test runs do not both take
``certificates``  a server certificate, as files
``webserver``     a web server in a thread
``kubectl``       kubectl as one user
``machines``      a VirtualMachine with every class of boot device
``console``       the serial console of a VM
``qemu``          test cases whose guests QEMU runs; ``images`` builds their
                  disks
``server``        the API server in the test's own process, without TLS
``admission``     ValidatingAdmissionPolicies without a cluster

They need the extra ``testing`` of this package.
"""
