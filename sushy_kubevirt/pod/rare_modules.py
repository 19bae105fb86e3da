# SPDX-License-Identifier: Apache-2.0
"""Modules that a BMC's process loads on first use, or never.

A GET of every resource and a session of IPMI need none of `RARE` and `NAMES`,
which saves memory. The modules of `PACKAGES` are those of this project: the
first answer does not wait for those that it does not need.
"""

from __future__ import annotations

from collections import abc
import sys
import types
import typing

from sushy_kubevirt.pod import lazy_modules

_MethodT = typing.TypeVar('_MethodT')

_DRIVERS = 'sushy_tools.emulator.resources.'

#: Modules that are loaded on first use: other drivers, what finds them and
#: their dependencies, modules for other kinds of accounts, uvicorn's for
#: several processes, forms, and modules of which importers use a function or
#: two. pycryptodomex starts a process, ``file``, when it loads AES.
RARE = (
    'libvirt', 'openstack', 'requests', 'stevedore', 'webob',
    _DRIVERS + 'systems.fakedriver', _DRIVERS + 'systems.ironicdriver',
    _DRIVERS + 'systems.libvirtdriver', _DRIVERS + 'systems.novadriver',
    *(_DRIVERS + kind for kind in (
        'chassis', 'drives', 'indicators', 'managers', 'storage', 'vmedia',
        'volumes')),
    'uvicorn._subprocess', 'uvicorn.supervisors.basereload',
    'uvicorn.supervisors.multiprocess',
    'Cryptodome.Cipher.AES', 'argparse', 'asyncio.sslproto', 'bz2', 'calendar',
    'click', 'csv', 'decimal', 'difflib', 'email.header', 'gzip', 'html',
    'linecache', 'locale', 'logging.config', 'lzma', 'mimetypes',
    'multiprocessing', 'multiprocessing.connection', 'multiprocessing.context',
    'pkgutil', 'platform', 'shutil', 'ssl', 'stringprep', 'tempfile',
    'textwrap', 'tokenize', 'werkzeug.sansio.multipart',
    'xml.etree.ElementTree', 'zipfile',
)

#: Modules whose importers take names of them: templates, forms, test clients,
#: and servers other than `http_server`; what uvicorn compares with, its
#: middleware, and types of its annotations; cookies of sessions, and headers
#: that are not ASCII.
NAMES = {
    'flask.templating': (
        'DispatchingJinjaLoader', 'Environment',
        '_default_template_ctx_processor', 'render_template',
        'render_template_string', 'stream_template',
        'stream_template_string'),
    'configparser': ('RawConfigParser',),
    'email.charset': ('Charset',),
    'importlib.metadata': ('version',),
    'itsdangerous': ('BadSignature', 'URLSafeTimedSerializer'),
    'jinja2': ('BaseLoader', 'FileSystemLoader'),
    'pprint': ('pformat',),
    'urllib3.filepost': ('_TYPE_FIELDS', 'encode_multipart_formdata'),
    'urllib3.util.ssltransport': ('SSLTransport',),
    'uuid': ('UUID',),
    'uvicorn._types': (
        'ASGI2Application', 'ASGI3Application', 'ASGIApplication',
        'ASGIReceiveCallable', 'ASGIReceiveEvent', 'ASGISendCallable',
        'ASGISendEvent', 'Environ', 'ExcInfo', 'HTTPRequestEvent',
        'HTTPResponseBodyEvent', 'HTTPResponseStartEvent', 'HTTPScope',
        'Scope', 'StartResponse', 'WSGIApp', 'WWWScope'),
    'uvicorn.main': ('Server', 'main', 'run'),
    'uvicorn.middleware.asgi2': ('ASGI2Middleware',),
    'uvicorn.middleware.proxy_headers': ('ProxyHeadersMiddleware',),
    'uvicorn.middleware.wsgi': ('WSGIMiddleware',),
    'werkzeug.datastructures.cache_control': (
        'RequestCacheControl', 'ResponseCacheControl'),
    'werkzeug.datastructures.csp': ('ContentSecurityPolicy',),
    'werkzeug.datastructures.file_storage': ('FileMultiDict', 'FileStorage'),
    'werkzeug.datastructures.range': ('ContentRange', 'IfRange', 'Range'),
    'werkzeug.formparser': ('FormDataParser', 'default_stream_factory'),
    'werkzeug.serving': ('is_running_from_reloader', 'run_simple'),
    'werkzeug.test': ('Client',),
}

#: Packages whose modules are all loaded on first use.
PACKAGES = 'sushy_kubevirt', 'vbmc_kubevirt'


class _AppGroup:
    """The commands of a Flask application: none."""

    name = None

    def __init__(self) -> None:
        self.commands: dict[str, object] = {}


def _memoize(permanent_cache: object = None
             ) -> abc.Callable[[_MethodT], _MethodT]:
    """Return a decorator that changes nothing."""
    return lambda method: method


def defer() -> None:
    """Defer `RARE`, `NAMES` and `PACKAGES`; call it before they are imported.

    ``flask.cli``, which needs click, is replaced: each Flask application has a
    group of commands for the program ``flask``, which does not run here. So is
    sushy-tools' ``memoize``, which needs tenacity, sqlite3 and pickle: it
    keeps drivers that no view of this project uses.
    pycryptodomex uses ctypes where there is no cffi: 2 MiB and a parser of C
    less, and encrypting is no slower. The API server is not asked for
    responses that ``backports.zstd`` unpacks.
    """
    lazy_modules.load(*RARE, names=NAMES, packages=PACKAGES)
    _replace('flask.cli', AppGroup=_AppGroup)
    _replace('sushy_tools.emulator.memoize', memoize=_memoize)
    # None has the import fail; typeshed does not know it.
    for name in 'cffi', 'backports.zstd':
        sys.modules[name] = None    # type: ignore[assignment]


def _replace(name: str, **members: object) -> None:
    """Let imports of a module find another one with these members."""
    stub = types.ModuleType(name, defer.__doc__)
    vars(stub).update(members)
    sys.modules[name] = stub
