# SPDX-License-Identifier: Apache-2.0
"""Modules that a BMC's process loads on first use, to save memory."""

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
