# SPDX-License-Identifier: Apache-2.0
"""Address and credentials of the API server.

Locates the kubeconfig or the pod's service account, renews credentials before
they expire and creates TLS contexts. `client` sends the requests, `kubeconfig`
parses kubeconfigs.
"""

from __future__ import annotations

from collections import abc
import functools
import logging
import os
import socket
import ssl
import tempfile
import threading
import time
import typing

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import kubeconfig

LOG = logging.getLogger(__name__)

ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount'

#: Environment variable with another folder that holds a service account.
ACCOUNT_VARIABLE = 'SUSHY_KUBEVIRT_ACCOUNT'

DEFAULT_KUBECONFIG = '~/.kube/config'

#: Seconds until a token file is read again (kubelet rotates tokens at 80 % of
#: their life, which is minutes at least).
TOKEN_SECONDS = 10

#: Shortest pause between two renewals of credentials, in seconds; doubled up
#: to the longest while renewals return the same credentials. A renewal may
#: start an exec plugin (`exec_plugin`). `Connection.renew` limits them by
#: comparing two times; the ``limits`` package would add 12.3 MiB (PSS) and
#: 0.2 s for that.
RENEW_SECONDS = 5
LONGEST_RENEW_SECONDS = 300

#: The kernel notices a peer that vanished within 15 to 30 s.
SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
] + [(socket.IPPROTO_TCP, getattr(socket, name), value)
     for name, value in (('TCP_KEEPIDLE', 15), ('TCP_KEEPINTVL', 5),
                         ('TCP_KEEPCNT', 3), ('TCP_USER_TIMEOUT', 20000))
     if hasattr(socket, name)]

#: Errors of TLS by which a peer has closed the connection, without a word
#: against certificates. It depends on the version of Python which of them a
#: handshake raises: `ssl.SSLZeroReturnError` in Debian 12's 3.11.2.
CLOSED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


class Access(typing.NamedTuple):
    """Address, TLS settings and credentials valid at one moment.

    ``ca``, ``cert`` and ``key`` are PEM texts, ``authorization`` is the value
    of the HTTP header, ``expiry`` is in seconds since the epoch.
    """

    server: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    authorization: str | None = None
    token_file: str | None = None
    proxy: str | None = None
    tls_server_name: str | None = None
    insecure: bool = False
    #: Headers by which the user acts as another one.
    impersonation: tuple[tuple[str, str], ...] = ()
    expiry: float | None = None
    namespace: str | None = None
    context: str | None = None

    def __repr__(self) -> str:
        return f'Access({self.server!r})'       # no credentials

    @property
    def transport(self) -> tuple[object, ...]:
        """The fields that require new connections when they change."""
        return (self.server, self.ca, self.cert, self.key, self.proxy,
                self.tls_server_name, self.insecure)

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Headers of a request that say on whose behalf it is."""
        return [('Authorization', self.authorization), *self.impersonation
                ] if self.authorization else [*self.impersonation]

    def ssl_context(self) -> ssl.SSLContext:
        """Create the context of connections to the server.

        :raises: `errors.ConfigError`
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            elif self.ca:
                context.load_verify_locations(cadata=self.ca)
            else:
                context.load_default_certs()
            if self.cert:
                _load_cert(context, f"{self.cert}\n{self.key or ''}")
        except ssl.SSLError as e:
            raise errors.ConfigError(
                f'The CA or client certificate for {self.server} cannot be '
                f'used: {e.reason or e}') from None
        return context


def _load_cert(context: ssl.SSLContext, pem: str) -> None:
    # `ssl` reads client certificates only from files. A file in memory keeps
    # the key off the disk. Without a password OpenSSL would ask the terminal
    # for that of an encrypted key.
    if hasattr(os, 'memfd_create'):
        with os.fdopen(os.memfd_create('client-certificate'), 'w') as f:
            f.write(pem)
            f.flush()
            context.load_cert_chain(f'/proc/self/fd/{f.fileno()}',
                                    password='')
        return
    with tempfile.NamedTemporaryFile('w') as f:
        f.write(pem)
        f.flush()
        context.load_cert_chain(f.name, password='')


class Connection:
    """Access to one API server, renewed as needed. Thread-safe.

    :param read: reads the credentials again
    :raises: what ``read`` raises, as it is called at once
    """

    _access: Access
    _renewed_at: float              # monotonic
    _renew_at: float | None         # seconds since the epoch
    _token_at: float                # monotonic; reads the token file again

    def __init__(self, read: abc.Callable[[], Access]) -> None:
        self._read = read
        self._pause: float = RENEW_SECONDS
        self._lock = threading.Lock()
        self._use(read())

    @classmethod
    def from_options(cls, kubeconfig: str | None = None,
                     context: str | None = None) -> typing.Self:
        """Use the first that exists of: the kubeconfig given, the folder that
        `ACCOUNT_VARIABLE` names, $KUBECONFIG, the service account of the pod
        this process runs in, ~/.kube/config.

        :param kubeconfig: path of a kubeconfig
        :param context: name of a context in it
        :raises: `errors.ConfigError`
        """
        if kubeconfig:
            paths = [os.path.expanduser(kubeconfig)]
            if not os.path.exists(paths[0]):
                raise errors.ConfigError(
                    f'The kubeconfig {kubeconfig} does not exist')
            return cls(_from_files(paths, context))
        in_pod = os.environ.get('KUBERNETES_SERVICE_HOST') and not context
        folder = os.environ.get(ACCOUNT_VARIABLE)
        if in_pod and folder:
            return cls(functools.partial(_from_account, folder))
        if os.environ.get('KUBECONFIG'):
            named = os.environ['KUBECONFIG'].split(os.pathsep)
            paths = [p for p in map(os.path.expanduser, filter(None, named))
                     if os.path.exists(p)]
            if not paths:
                raise errors.ConfigError(
                    '$KUBECONFIG names files that do not exist: '
                    + os.environ['KUBECONFIG'])
            return cls(_from_files(paths, context))
        if in_pod:
            return cls(functools.partial(_from_account, ACCOUNT_DIR))
        path = os.path.expanduser(DEFAULT_KUBECONFIG)
        if not os.path.exists(path):
            raise errors.ConfigError(
                'No credentials for a cluster: there is neither '
                f'{DEFAULT_KUBECONFIG} nor a service account of a pod. Name a '
                'kubeconfig in the configuration or in $KUBECONFIG')
        return cls(_from_files([path], context))

    @property
    def namespace(self) -> str | None:
        """Namespace of the context or service account, or None."""
        return self._access.namespace

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._access.server

    @property
    def login_due(self) -> bool:
        """Whether `access` would renew credentials now, which may be slow."""
        return bool(self._renew_at and time.time() >= self._renew_at)

    def access(self) -> Access:
        """Return the `Access` to use now, renewed if it is about to expire.

        :raises: `errors.ConfigError` if the renewal fails
        """
        access = self._access
        if self.login_due:
            try:
                return self.renew(access)
            except errors.ConfigError as e:
                if access.expiry is None or time.time() >= access.expiry:
                    raise
                # The present credentials are still valid.
                LOG.warning('Credentials for %s could not be renewed; the '
                            'present ones are used until they expire: %s',
                            access.server, e)
                self._renew_at = time.time() + RENEW_SECONDS
        if access.token_file and time.monotonic() >= self._token_at:
            with self._lock:
                self._read_token()
        return self._access

    def renew(self, seen: Access) -> Access:
        """Get new credentials after the server refused the present ones.

        :param seen: what was refused
        :returns: ``seen`` itself if there is nothing else
        """
        with self._lock:
            if self._access is not seen:
                return self._access
            if seen.token_file:
                # Reading a file is cheap, so it is not limited.
                self._read_token()
                if self._access is not seen:
                    return self._access
            if time.monotonic() < self._renewed_at + self._pause:
                return seen
            self._renewed_at = time.monotonic()
            self._use(self._read())
            if self._access != seen:
                self._pause = RENEW_SECONDS
                return self._access
            self._access = seen
            self._pause = min(self._pause * 2, LONGEST_RENEW_SECONDS)
            return seen

    def _use(self, access: Access) -> None:
        now = time.time()
        self._renewed_at = time.monotonic()
        self._token_at = 0.0
        self._renew_at = None
        if access.expiry:
            # 60 s before the end, or a fifth of the life if that is shorter.
            self._renew_at = access.expiry - min(
                60, max(access.expiry - now, 0) / 5)
        self._access = access
        self._read_token()

    def _read_token(self) -> None:
        path = self._access.token_file
        if not path:
            return
        try:
            with open(path) as f:
                token = f.read().strip()
        except OSError as e:
            raise errors.ConfigError(
                f'The token file {path} cannot be read: {e.strerror}'
            ) from None
        except ValueError:
            token = ''
        if not token or not token.isascii() or not token.isprintable():
            raise errors.ConfigError(
                f'The token file {path} needs a line of ASCII characters')
        self._token_at = time.monotonic() + TOKEN_SECONDS
        header = f'Bearer {token}'
        if header != self._access.authorization:
            self._access = self._access._replace(authorization=header)


def _from_files(paths: list[str], context: str | None
                ) -> abc.Callable[[], Access]:
    return lambda: Access(**kubeconfig.read(paths, context))


def _from_account(folder: str) -> Access:
    """Read a pod's service account."""
    host = os.environ['KUBERNETES_SERVICE_HOST']
    if ':' in host:
        host = f'[{host}]'
    try:
        with open(os.path.join(folder, 'ca.crt')) as f:
            ca = f.read()
        with open(os.path.join(folder, 'namespace')) as f:
            namespace = f.read().strip()
    except OSError as e:
        raise errors.ConfigError(
            'The service account of this pod cannot be read: '
            f'{e.filename}: {e.strerror}') from None
    port = os.environ.get('KUBERNETES_SERVICE_PORT') or 443
    return Access(
        server=f'https://{host}:{port}', ca=ca, namespace=namespace,
        token_file=os.path.join(folder, 'token'))
