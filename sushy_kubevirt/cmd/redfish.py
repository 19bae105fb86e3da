# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-redfish``: sushy-emulator as it runs in a BMC's pod.

The application is sushy-tools' own with this project's plugin, configured by
the file that SUSHY_EMULATOR_CONFIG names, as under any WSGI server. The rest
of the command is in `pod.process`. This module defers the import of rarely
used modules, because there is one such process for each VM.
"""

import sys

from sushy_kubevirt.pod import lazy_modules

_DRIVERS = 'sushy_tools.emulator.resources.'

#: What is needed rarely or never: the other drivers and what they need, what
#: is for another kind of accounts, and large modules of the standard library
#: that others import for a function or two.
RARE = (
    'libvirt', 'openstack', 'requests', 'webob',
    _DRIVERS + 'systems.fakedriver', _DRIVERS + 'systems.ironicdriver',
    _DRIVERS + 'systems.libvirtdriver', _DRIVERS + 'systems.novadriver',
    _DRIVERS + 'vmedia',
    'argparse', 'bz2', 'calendar', 'csv', 'decimal', 'difflib', 'html',
    'lzma', 'mimetypes', 'shutil', 'xml.etree.ElementTree', 'zipfile',
)


def main(argv=None):
    """Run until SIGTERM or SIGINT.

    :param argv: list of words, without the program's name
    :returns: exit code
    """
    lazy_modules.load(*RARE)
    # Imports the rest.
    from sushy_kubevirt.pod import process
    return process.main(sys.argv[1:] if argv is None else argv)


if __name__ == '__main__':
    sys.exit(main())
