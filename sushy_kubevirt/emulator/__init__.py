# SPDX-License-Identifier: Apache-2.0
"""The integration into sushy-tools' sushy-emulator.

What runs is a Redfish service hosted in the unpatched sushy-emulator. Its
Flask application, config file, command line and WSGI entry point are used as
sushy-tools ships them; each of its 45 Redfish endpoints is answered by a view
of `sushy_kubevirt.redfish` (`redfish.routes`). Only Flask's own ``static``
endpoint remains.

- `plugin` installs the views and selects the drivers;
- `settings` reads the options of the config file;
- `system_driver` connects to the cluster and decides which VMs are served.
"""
