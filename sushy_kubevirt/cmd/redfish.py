# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-redfish``: Redfish container of a BMC pod, for one VM.

Serves sushy-tools' application with this project's plugin, configured by the
file in SUSHY_EMULATOR_CONFIG, as under any WSGI server. This module only
defers imports, to save memory in each VM's pod; `pod.process` does the rest.
"""

import sys

from sushy_kubevirt.pod import lazy_modules

_DRIVERS = 'sushy_tools.emulator.resources.'

#: Modules that are loaded on first use: other drivers and their dependencies,
#: modules for other kinds of accounts, uvicorn's for several processes, and
#: large modules of the standard library of which importers use a function or
#: two.
RARE = (
    'libvirt', 'openstack', 'requests', 'webob',
    _DRIVERS + 'systems.fakedriver', _DRIVERS + 'systems.ironicdriver',
    _DRIVERS + 'systems.libvirtdriver', _DRIVERS + 'systems.novadriver',
    _DRIVERS + 'vmedia',
    'uvicorn._subprocess', 'uvicorn.supervisors.basereload',
    'uvicorn.supervisors.multiprocess',
    'argparse', 'bz2', 'calendar', 'configparser', 'csv', 'decimal',
    'difflib', 'html', 'logging.config', 'lzma', 'mimetypes',
    'multiprocessing', 'multiprocessing.connection',
    'multiprocessing.context', 'shutil', 'xml.etree.ElementTree', 'zipfile',
)


def main(argv=None):
    """Run until SIGTERM or SIGINT.

    :param argv: list of words, without the program's name
    :returns: exit code
    """
    lazy_modules.load(*RARE)
    # Imported after `load`, as it imports modules of the list.
    from sushy_kubevirt.pod import process
    return process.main(sys.argv[1:] if argv is None else argv)


if __name__ == '__main__':
    sys.exit(main())
