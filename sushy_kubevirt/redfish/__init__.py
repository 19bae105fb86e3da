# SPDX-License-Identifier: Apache-2.0
"""The Redfish service.

`protocol` implements what DSP0266 demands of every request, `resources` has
one module per resource, `services` the state behind accounts, sessions and
events. `routes` lists the resources and installs them into sushy-emulator's
Flask application. VMs are reached only through `sushy_kubevirt.machine`.
"""
