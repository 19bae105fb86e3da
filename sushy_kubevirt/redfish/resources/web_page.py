# SPDX-License-Identifier: Apache-2.0
"""Files of the web page, which need no login and contain no data.

The page runs in the browser and uses Redfish like any other client. Its files
are those of `sushy_kubevirt.web`; xterm.js and noVNC, which the consoles need,
are in a folder of their own (``Settings.web_modules``).
"""

from __future__ import annotations

import functools
import gzip
import os

import flask
from werkzeug import security

from sushy_kubevirt.redfish.protocol import application
from sushy_kubevirt.redfish.protocol import authentication
from sushy_kubevirt.redfish.protocol import error_responses
from sushy_kubevirt.redfish.protocol import routing
from sushy_kubevirt import web

_STATIC = os.path.join(os.path.dirname(web.__file__), 'static')

#: Start of the paths of installed modules, below `authentication.WEB_FILES`.
_MODULES = 'modules/'

#: Media types by the ends of names; no other file is served.
_TYPES = {'.css': 'text/css', '.html': 'text/html', '.js': 'text/javascript',
          '.mjs': 'text/javascript', '.svg': 'image/svg+xml'}

#: The page loads everything from its own host, and no other page can contain
#: it. ``data:`` is noVNC's picture of the mouse pointer.
HEADERS = {
    'Content-Security-Policy': '; '.join((
        "default-src 'none'", "script-src 'self'", "style-src 'self'",
        "img-src 'self' data:", "connect-src 'self'", "base-uri 'none'",
        "form-action 'none'", "frame-ancestors 'none'")),
    'Cross-Origin-Opener-Policy': 'same-origin',
    'Cross-Origin-Resource-Policy': 'same-origin',
    'Referrer-Policy': 'no-referrer',
    'Vary': 'Accept-Encoding',
    'X-Content-Type-Options': 'nosniff',
    'X-Frame-Options': 'DENY',
}


def page() -> flask.Response:
    """GET /: the web page"""
    return _send(_STATIC, 'index.html')


def file(name: str) -> flask.Response:
    """GET /web/<name>: a file of the page, or of an installed module"""
    if name.startswith(_MODULES):
        return _send(application.current().systems.settings.web_modules,
                     name.removeprefix(_MODULES))
    return _send(_STATIC, name)


def _send(folder: str, name: str) -> flask.Response:
    path = security.safe_join(folder, name)
    kind = _TYPES.get(os.path.splitext(name)[1])
    if (path is None or kind is None
            or not application.current().systems.settings.web_page):
        raise error_responses.uri_not_found()
    headers = dict(HEADERS)
    packed = flask.request.accept_encodings['gzip'] > 0
    if packed:
        headers['Content-Encoding'] = 'gzip'
    read = _packed if packed else _read
    try:
        data = read(path, os.stat(path).st_mtime_ns)
    except (OSError, ValueError):    # the latter for a null character
        raise error_responses.uri_not_found() from None
    response = flask.Response(data, mimetype=kind, headers=headers)
    # Cache-Control is no-cache: a browser asks whether its copy is current.
    response.add_etag()
    response.make_conditional(flask.request)
    # Servers set it.
    response.headers.pop('Date', None)
    return response


def _read(path: str, _modified: int) -> bytes:
    with open(path, 'rb') as stream:
        return stream.read()


# More than there are files, of about 0.4 MiB. Anybody can request them, and
# compressing takes much longer than sending.
@functools.lru_cache(maxsize=256)
def _packed(path: str, modified: int) -> bytes:
    return gzip.compress(_read(path, modified), mtime=0)


ROUTES = (
    routing.add('/', page, feature='minimum', media='text/html'),
    routing.add(authentication.WEB_FILES + '<path:name>', file,
                feature='minimum', media='text/javascript'),
)
