# SPDX-License-Identifier: Apache-2.0
"""Where the API server is and how to be let in.

Finds the kubeconfig or the account of the pod, keeps the credentials fresh
and makes TLS contexts of them. What is said over the connection is `client`'s
affair, how a kubeconfig is read `kubeconfig`'s.
"""

import dataclasses
import logging
import os
import socket
import ssl
import tempfile
import threading
import time

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import kubeconfig as kubeconfig_reader

LOG = logging.getLogger(__name__)

ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount'

#: Variable that names another folder with the account of a pod.
ACCOUNT_VARIABLE = 'SUSHY_KUBEVIRT_ACCOUNT'

DEFAULT_KUBECONFIG = '~/.kube/config'

#: A rotating token is read again after this long (kubelet rotates at 80 % of
#: its life, never less than minutes).
TOKEN_SECONDS = 10

#: Credentials are not fetched more often than this, whatever the server says;
#: nor for longer and longer while they come back as they were.
RENEW_SECONDS = 5
LONGEST_RENEW_SECONDS = 300

#: A peer that vanished without a word is noticed by the kernel in 15 to 30 s.
SOCKET_OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
] + [(socket.IPPROTO_TCP, getattr(socket, name), value)
     for name, value in (('TCP_KEEPIDLE', 15), ('TCP_KEEPINTVL', 5),
                         ('TCP_KEEPCNT', 3), ('TCP_USER_TIMEOUT', 20000))
     if hasattr(socket, name)]


@dataclasses.dataclass(frozen=True)
class Access:
    """What is needed to speak to the API server, at one moment."""

    server: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = dataclasses.field(default=None, repr=False)
    authorization: str | None = dataclasses.field(default=None, repr=False)
    token_file: str | None = None
    proxy: str | None = dataclasses.field(default=None, repr=False)
    tls_server_name: str | None = None
    insecure: bool = False
    expiry: float | None = None
    namespace: str | None = None
    context: str | None = None

    @property
    def transport(self):
        """What a pool of connections depends on."""
        return (self.server, self.ca, self.cert, self.key, self.proxy,
                self.tls_server_name, self.insecure)

    def ssl_context(self):
        """:returns: a new `ssl.SSLContext`"""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.ca:
            context.load_verify_locations(cadata=self.ca)
        else:
            context.load_default_certs()
        if self.cert:
            _load_cert(context, f"{self.cert}\n{self.key or ''}")
        return context


def _load_cert(context, pem):
    # OpenSSL reads client certificates from files only. One in memory keeps
    # the key off the disk.
    if hasattr(os, 'memfd_create'):
        with os.fdopen(os.memfd_create('client-certificate'), 'w') as f:
            f.write(pem)
            f.flush()
            context.load_cert_chain('/proc/self/fd/%d' % f.fileno())
        return
    with tempfile.NamedTemporaryFile('w') as f:
        f.write(pem)
        f.flush()
        context.load_cert_chain(f.name)


class Connection:
    """The way to one API server. Safe to use from several threads.

    :param read: function that returns a fresh `Access`
    :raises: what read raises: a way that is not there is told at once
    """

    def __init__(self, read):
        self._read = read
        self._pause = RENEW_SECONDS
        self.after_fork()
        self._use(read())

    @classmethod
    def from_options(cls, kubeconfig=None, context=None):
        """Find the way: the file named, the folder that `ACCOUNT_VARIABLE`
        names, $KUBECONFIG, the account of the pod this runs in,
        ~/.kube/config; the first there is.

        :param kubeconfig: path of a kubeconfig
        :param context: name of a context in it
        :raises: `errors.ConfigError`
        """
        if kubeconfig:
            paths = [os.path.expanduser(kubeconfig)]
            if not os.path.exists(paths[0]):
                raise errors.ConfigError(
                    f'There is no kubeconfig {kubeconfig}')
            return cls(_from_files(paths, context))
        in_pod = os.environ.get('KUBERNETES_SERVICE_HOST') and not context
        folder = os.environ.get(ACCOUNT_VARIABLE)
        if in_pod and folder:
            return cls(lambda: _from_account(folder))
        if os.environ.get('KUBECONFIG'):
            named = os.environ['KUBECONFIG'].split(os.pathsep)
            paths = [p for p in map(os.path.expanduser, filter(None, named))
                     if os.path.exists(p)]
            if not paths:
                raise errors.ConfigError(
                    'There is no kubeconfig %s, which $KUBECONFIG names'
                    % os.environ['KUBECONFIG'])
            return cls(_from_files(paths, context))
        if in_pod:
            return cls(lambda: _from_account(ACCOUNT_DIR))
        path = os.path.expanduser(DEFAULT_KUBECONFIG)
        if not os.path.exists(path):
            raise errors.ConfigError(
                'No way to a cluster: there is neither %s nor an account of '
                'a pod. Name a kubeconfig in the configuration or in '
                '$KUBECONFIG' % DEFAULT_KUBECONFIG)
        return cls(_from_files([path], context))

    def after_fork(self):
        """Forget the locks a thread of the parent may have held."""
        self._lock = threading.Lock()

    @property
    def namespace(self):
        """The context's or account's own namespace, or None."""
        return self._access.namespace

    @property
    def server(self):
        """URL of the API server."""
        return self._access.server

    @property
    def login_due(self):
        """Whether `access` would log in again now, which may take long."""
        return bool(self._renew_at and time.time() >= self._renew_at)

    def access(self):
        """The `Access` to use now, renewed if it is about to expire.

        :raises: `errors.ConfigError` if that fails
        """
        access = self._access
        if self.login_due:
            try:
                return self.renew(access)
            except errors.ConfigError as e:
                if time.time() >= access.expiry:
                    raise
                # They are good for a while yet.
                LOG.warning('%s', e)
                self._renew_at = time.time() + RENEW_SECONDS
        if access.token_file and time.monotonic() >= self._token_at:
            with self._lock:
                self._read_token()
        return self._access

    def renew(self, seen):
        """Fetch credentials again, after the server refused them.

        :param seen: the `Access` that was refused
        :returns: another `Access`; seen itself if there is no other
        """
        with self._lock:
            if self._access is not seen:
                return self._access
            if seen.token_file:
                # A look into a file costs nothing.
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

    def _use(self, access):
        now = time.time()
        self._renewed_at = time.monotonic()
        self._token_at = 0
        self._renew_at = None
        if access.expiry:
            # Before the end, but not over and over if the life is short.
            self._renew_at = access.expiry - min(
                60, max(access.expiry - now, 0) / 5)
        self._access = access
        if access.token_file:
            self._read_token()

    def _read_token(self):
        try:
            with open(self._access.token_file) as f:
                token = f.read().strip()
        except OSError as e:
            raise errors.ConfigError(
                'The token file %s cannot be read: %s'
                % (self._access.token_file, e.strerror)) from None
        self._token_at = time.monotonic() + TOKEN_SECONDS
        header = f'Bearer {token}'
        if header != self._access.authorization:
            self._access = dataclasses.replace(
                self._access, authorization=header)


def _from_files(paths, context):
    return lambda: Access(**kubeconfig_reader.read(paths, context))


def _from_account(folder):
    """The account that Kubernetes gives a pod."""
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
            'This pod has no account to use: %s: %s'
            % (e.filename, e.strerror)) from None
    return Access(
        server='https://%s:%s' % (
            host, os.environ.get('KUBERNETES_SERVICE_PORT') or 443),
        ca=ca, namespace=namespace,
        token_file=os.path.join(folder, 'token'))
