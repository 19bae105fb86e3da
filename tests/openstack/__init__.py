# SPDX-License-Identifier: Apache-2.0
"""Virtual bare metal in a complete OpenStack.

Keystone, Placement, Glance, Neutron, Nova and Ironic of PyPI run with MariaDB
and RabbitMQ of Debian on loopback; `cloud` starts them all. This project's own
command declares the nodes, whose VMs are QEMU guests.

They are a separate suite, ``tools/test openstack``, as nothing else needs
these packages; `tests.fixtures.environments` installs them.
"""
