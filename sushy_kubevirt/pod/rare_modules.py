# SPDX-License-Identifier: Apache-2.0
"""Modules that a BMC's process loads on first use, or never, to save memory.

A GET of every resource and a session of IPMI need none of them.
"""

from __future__ import annotations

import sys
import types

from sushy_kubevirt.pod import lazy_modules

_DRIVERS = 'sushy_tools.emulator.resources.'

#: Modules that are loaded on first use: other drivers, what finds them and
#: their dependencies, modules for other kinds of accounts, uvicorn's for
#: several processes, and large modules of the standard library of which
#: importers use a function or two.
RARE = (
    'libvirt', 'openstack', 'requests', 'stevedore', 'webob',
    _DRIVERS + 'systems.fakedriver', _DRIVERS + 'systems.ironicdriver',
    _DRIVERS + 'systems.libvirtdriver', _DRIVERS + 'systems.novadriver',
    _DRIVERS + 'vmedia',
    'uvicorn._subprocess', 'uvicorn.supervisors.basereload',
    'uvicorn.supervisors.multiprocess',
    'argparse', 'bz2', 'calendar', 'click', 'csv', 'decimal',
    'difflib', 'html', 'logging.config', 'lzma', 'mimetypes',
    'multiprocessing', 'multiprocessing.connection',
    'multiprocessing.context', 'shutil', 'xml.etree.ElementTree', 'zipfile',
)

#: Modules whose importers take names of them: templates, test clients, and
#: servers other than `http_server`; and what uvicorn compares with.
NAMES = {
    'flask.templating': (
        'DispatchingJinjaLoader', 'Environment',
        '_default_template_ctx_processor', 'render_template',
        'render_template_string', 'stream_template',
        'stream_template_string'),
    'configparser': ('RawConfigParser',),
    'jinja2': ('BaseLoader', 'FileSystemLoader'),
    'uvicorn.main': ('Server', 'main', 'run'),
    'werkzeug.serving': ('is_running_from_reloader', 'run_simple'),
    'werkzeug.test': ('Client',),
}


class _AppGroup:
    """The commands of a Flask application: none."""

    name = None

    def __init__(self) -> None:
        self.commands: dict[str, object] = {}


def defer() -> None:
    """Defer `RARE` and `NAMES`; call it before any of them is imported.

    ``flask.cli``, which needs click, is replaced: each Flask application has a
    group of commands for the program ``flask``, which does not run here.
    pycryptodomex uses ctypes where there is no cffi: 2 MiB and a parser of C
    less, and encrypting is no slower.
    """
    lazy_modules.load(*RARE, names=NAMES)
    stub = types.ModuleType('flask.cli', defer.__doc__)
    vars(stub)['AppGroup'] = _AppGroup
    sys.modules['flask.cli'] = stub
    # None has the import fail; typeshed does not know it.
    sys.modules['cffi'] = None      # type: ignore[assignment]
