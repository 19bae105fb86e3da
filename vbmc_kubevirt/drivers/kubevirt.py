# SPDX-License-Identifier: Apache-2.0
"""KubeVirt VMs: one process serves all entries that share a connection."""

import gc
import multiprocessing
import os
import re
import signal
import stat

#: RFC 1123: a namespace is a label, a VM's name a subdomain.
_LABEL = r'[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?'
_NAMESPACE = re.compile(_LABEL)
_NAME = re.compile(rf'{_LABEL}(\.{_LABEL})*')

#: Seconds a host has to answer an order; it takes milliseconds. At first it
#: has to import what it needs, which a busy machine takes its time for.
ORDER_SECONDS = 4
FIRST_ORDER_SECONDS = 30


def _path(text):
    return os.path.abspath(os.path.expanduser(text))


class Driver:
    """Entries of KubeVirt VMs."""

    options = chosen = ('namespace', 'kubeconfig', 'context')

    @staticmethod
    def add_arguments(parser):
        parser.add_argument(
            '--namespace', default=None,
            help='Namespace of a KubeVirt VM, which may also be named as '
                 'NAMESPACE/NAME; defaults to the one in the daemon\'s config '
                 'file, or the context\'s own')
        parser.add_argument(
            '--kubeconfig', default=None, type=_path,
            help='Kubeconfig with the cluster of a KubeVirt VM, for the '
                 'daemon to read; defaults to the one in its config file, '
                 'or the usual places')
        parser.add_argument(
            '--context', default=None,
            help='Context in the kubeconfig; defaults to the one in the '
                 'daemon\'s config file, or the current one')

    def __init__(self):
        # See the package: for the daemon only.
        from vbmc_kubevirt import config
        from vbmc_kubevirt.ipmi import constants
        from vbmc_kubevirt import upstream
        from vbmc_kubevirt import vm_check
        self._constants = constants
        self._vm_check = vm_check
        self._upstream = upstream
        self._settings = config.load()
        self._hosts = {}

    # Adding

    def check(self, entry):
        self._check_credentials(entry)
        if entry['kubeconfig']:
            self._check_kubeconfig(entry['kubeconfig'])
        namespace, name = self._split(entry)
        # vbmc waits so long; some of it for what is not the cluster's.
        patience = self._upstream.CONF['default']['server_response_timeout']
        errors = self._vm_check.errors
        try:
            namespace = self._vm_check.find(
                entry['kubeconfig'] or self._settings.kubeconfig,
                entry['context'] or self._settings.context,
                namespace, name, self._settings.options,
                max(patience / 1000 - 0.5, 0.5))
        except errors.MachineError as exc:
            raise self._upstream.VirtualBMCError(str(exc))
        return entry | {'namespace': namespace}

    def _split(self, entry):
        """:returns: (namespace, name); namespace is None if nobody says"""
        domain_name, chosen = entry['domain_name'], entry['namespace']
        namespace, slash, name = domain_name.rpartition('/')
        if slash and chosen and namespace != chosen:
            raise self._refusal(
                f'{domain_name} is not in the namespace {chosen}')
        namespace = namespace or chosen or self._settings.namespace
        if namespace and (len(namespace) > 63
                          or not _NAMESPACE.fullmatch(namespace)):
            raise self._refusal(f'No namespace can be named {namespace!r}')
        if len(name) > 253 or not _NAME.fullmatch(name):
            raise self._refusal(f'No VM can be named {name!r}')
        return namespace, name

    def _refusal(self, text):
        return self._upstream.VirtualBMCError(text)

    def _check_credentials(self, entry):
        """IPMI keeps so many bytes, and a config file one line."""
        for option, limit in (('username', self._constants.USERNAME_MAX),
                              ('password', self._constants.PASSWORD_MAX)):
            value = entry[option]
            length = len(value.encode())
            if not 0 < length <= limit:
                raise self._refusal(
                    'The %s must have 1 to %d bytes, not %d'
                    % (option, limit, length))
            if value != value.strip() or not value.isprintable():
                raise self._refusal(
                    'The %s must have no spaces at its ends and no control '
                    'characters' % option)

    def _check_kubeconfig(self, path):
        """Whoever reaches the daemon's port names it, and a kubeconfig may
        name a program to run: it must be by somebody the daemon trusts."""
        try:
            info = os.stat(path)
        except OSError as exc:
            raise self._refusal(f'Kubeconfig {path}: {exc.strerror}')
        if not stat.S_ISREG(info.st_mode):
            raise self._refusal(f'Kubeconfig {path} is no file')
        if (info.st_uid not in (0, os.geteuid())
                or info.st_mode & stat.S_IWOTH):
            raise self._refusal(
                'Kubeconfig %s must belong to root or to the user the daemon '
                'runs as, and not be writable for all' % path)

    # Serving

    def start(self, entry):
        name = entry['domain_name']
        if not entry.get('namespace'):
            raise self._refusal('The entry has no namespace')
        host = self._host_for(entry)
        if host.serves(name):
            return False
        host.start(entry)
        return True

    def _host_for(self, entry):
        key = (entry.get('kubeconfig') or self._settings.kubeconfig,
               entry.get('context') or self._settings.context)
        host = self._hosts.get(key)
        if host is not None and not host.alive():
            host.end()
            host = None
        if host is None:
            host = self._hosts[key] = HostProcess(
                _serve, *key, self._settings.options, self._refusal)
        return host

    def _find(self, name):
        for host in self._hosts.values():
            if host.serves(name):
                return host

    def stop(self, name):
        host = self._find(name)
        if host is not None:
            host.stop(name)
        for key, idle in list(self._hosts.items()):
            if not idle.entries:
                self._hosts.pop(key).end()
        return host is not None

    def state(self, name):
        host = self._find(name)
        if host is None or not host.alive():
            return self._upstream.ERROR, ('its process ended; it is about to '
                                          'be started again')
        try:
            return (self._upstream.RUNNING,
                    host.order('problems').get(name, ''))
        except self._upstream.VirtualBMCError as exc:
            return self._upstream.ERROR, str(exc)

    def close(self):
        while self._hosts:
            self._hosts.popitem()[1].end()


def _serve(*arguments):
    """What a host's process runs.

    It imports what it needs for itself. Pages that were shared with the
    daemon would not stay so: to use a thing is to count its references.

    :param arguments: of `bmc_process.Host`
    """
    # The daemon's handlers would end its other children. It is the daemon
    # that a terminal's interrupt is for.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from vbmc_kubevirt import bmc_process
    bmc_process.main(*arguments)


class HostProcess:
    """The daemon's end of a host.

    :param main: what the process runs
    :param refusal: function that makes the error to raise from a text
    """

    def __init__(self, main, kubeconfig, context, options, refusal):
        self._refusal = refusal
        self._patience = FIRST_ORDER_SECONDS
        self.entries = set()
        fork = multiprocessing.get_context('fork')
        self._pipe, there = fork.Pipe()
        # The child's collector leaves alone what it shares with this.
        gc.collect()
        gc.freeze()
        # A pipe's end does not tell of the daemon's: its other children
        # have that end too.
        daemon = os.pidfd_open(os.getpid())
        self._process = fork.Process(
            name='vbmcd-kubevirt-host', target=main, daemon=True,
            args=(there, daemon, kubeconfig, context, options))
        self._process.start()
        os.close(daemon)
        gc.unfreeze()
        there.close()

    def alive(self):
        return self._process.is_alive()

    def serves(self, name):
        return name in self.entries

    def start(self, entry):
        problem = self.order('start', entry)
        if problem is not None:
            raise self._refusal(problem)
        self.entries.add(entry['domain_name'])

    def stop(self, name):
        self.entries.discard(name)
        if self.alive():
            self.order('stop', name)

    def order(self, name, *arguments):
        """Have the host do something.

        A host that does not answer is ended; a new one will take its place.
        """
        try:
            self._pipe.send((name, *arguments))
            if not self._pipe.poll(self._patience):
                raise EOFError()
            done, answer = self._pipe.recv()
            self._patience = ORDER_SECONDS
        except (EOFError, OSError):
            self.end()
            raise self._refusal('The process that serves KubeVirt VMs does '
                                'not answer')
        if not done:
            raise self._refusal(answer)
        return answer

    def end(self):
        self._process.kill()
        self._process.join()
        self._pipe.close()
