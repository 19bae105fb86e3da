# SPDX-License-Identifier: Apache-2.0
"""Redfish resources: one module per resource or family of resources.

A module translates between a Redfish schema and `sushy_kubevirt.machine` or
`sushy_kubevirt.redfish.services`, and declares its routes in ``ROUTES``. The
schema version is in ``@odata.type``. `sushy_kubevirt.redfish.routes` installs
the modules.

To add a property, add it to the dict that the module's ``_body`` (or GET view)
returns; if PATCH refuses or accepts it, also to the module's shape (see
`protocol.payload`).
"""
