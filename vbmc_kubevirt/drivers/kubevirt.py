# SPDX-License-Identifier: Apache-2.0
"""KubeVirt driver: one process serves all entries of a connection."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import re
import signal
import stat
import typing

if typing.TYPE_CHECKING:
    from vbmc_kubevirt import config
    from vbmc_kubevirt import entries

#: RFC 1123: a namespace is a label, a VM's name a subdomain.
_LABEL = r'[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?'
_NAMESPACE = re.compile(_LABEL)
_NAME = re.compile(rf'{_LABEL}(\.{_LABEL})*')

#: Timeout in seconds of a call to the process, which takes milliseconds.
#: Before the first one the process imports its modules.
CALL_SECONDS = 4
FIRST_CALL_SECONDS = 30


def _path(text: str) -> str:
    return os.path.abspath(os.path.expanduser(text))


class Driver:
    """Driver of KubeVirt VMs; see the package for its methods."""

    options = chosen = ('namespace', 'kubeconfig', 'context')

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            '--namespace', default=None,
            help='Namespace of a KubeVirt VM, which can also be given as '
                 'NAMESPACE/NAME; defaults to the namespace in the daemon\'s '
                 'config file or in the context')
        parser.add_argument(
            '--kubeconfig', default=None, type=_path,
            help='Kubeconfig for the cluster of a KubeVirt VM, readable by '
                 'the daemon; defaults to the kubeconfig in its config file '
                 'or the usual files')
        parser.add_argument(
            '--context', default=None,
            help='Context in the kubeconfig; defaults to the context in the '
                 'daemon\'s config file or the current one')

    def __init__(self) -> None:
        # Imported in the daemon only, see the package.
        from vbmc_kubevirt import config
        from vbmc_kubevirt.ipmi import constants
        from vbmc_kubevirt import upstream
        from vbmc_kubevirt import vm_check
        self._constants = constants
        self._vm_check = vm_check
        self._upstream = upstream
        self._settings = config.load()
        self._processes: dict[
            tuple[str | None, str | None], BmcProcessHandle] = {}

    # Adding entries

    def check(self, entry: entries.Entry) -> entries.Entry:
        self._check_credentials(entry)
        if entry['kubeconfig']:
            self._check_kubeconfig(entry['kubeconfig'])
        namespace, name = self._split(entry)
        # Timeout of vbmc in milliseconds; leave some of it for other steps.
        timeout = self._upstream.CONF['default']['server_response_timeout']
        errors = self._vm_check.errors
        try:
            namespace = self._vm_check.find(
                entry['kubeconfig'] or self._settings.kubeconfig,
                entry['context'] or self._settings.context,
                namespace, name, self._settings.machine_options,
                max(timeout / 1000 - 0.5, 0.5))
        except errors.MachineError as exc:
            raise self._upstream.VirtualBMCError(str(exc))
        return entry | {'namespace': namespace}

    def _split(self, entry: entries.Entry) -> tuple[str | None, str]:
        """Return namespace, None if it is not given, and name."""
        domain_name, chosen = entry['domain_name'], entry['namespace']
        namespace, slash, name = domain_name.rpartition('/')
        if slash and chosen and namespace != chosen:
            raise self._error(
                f'{domain_name} is not in namespace {chosen}')
        namespace = namespace or chosen or self._settings.namespace
        if namespace and (len(namespace) > 63
                          or not _NAMESPACE.fullmatch(namespace)):
            raise self._error(f'{namespace!r} is not a valid namespace name')
        if len(name) > 253 or not _NAME.fullmatch(name):
            raise self._error(f'{name!r} is not a valid VM name')
        return namespace, name

    def _error(self, text: str) -> Exception:
        return self._upstream.VirtualBMCError(text)

    def _check_credentials(self, entry: entries.Entry) -> None:
        """Check that IPMI and the config file's format can hold them."""
        for option, limit in (('username', self._constants.USERNAME_MAX),
                              ('password', self._constants.PASSWORD_MAX)):
            value = entry[option]
            length = len(value.encode())
            if not 0 < length <= limit:
                raise self._error(
                    f'The {option} must have 1 to {limit} bytes, not '
                    f'{length}')
            if value != value.strip() or not value.isprintable():
                raise self._error(
                    f'The {option} must not have leading or trailing spaces '
                    'or control characters')

    def _check_kubeconfig(self, path: str) -> None:
        """Reject kubeconfigs that other users may have written.

        Any local user can connect to the daemon's port and name a path, and
        a kubeconfig may name a program that the daemon then executes.
        """
        try:
            info = os.stat(path)
        except OSError as exc:
            raise self._error(f'Kubeconfig {path}: {exc.strerror}')
        if not stat.S_ISREG(info.st_mode):
            raise self._error(f'Kubeconfig {path} is not a regular file')
        if (info.st_uid not in (0, os.geteuid())
                or info.st_mode & stat.S_IWOTH):
            raise self._error(
                f'Kubeconfig {path} must belong to root or to the daemon\'s '
                'user and must not be writable by others')

    # Serving entries

    def start(self, entry: entries.Entry) -> bool:
        name = entry['domain_name']
        if not entry.get('namespace'):
            raise self._error('The entry has no namespace')
        process = self._process_for(entry)
        if name in process.entries:
            return False
        process.start(entry)
        return True

    def _process_for(self, entry: entries.Entry) -> BmcProcessHandle:
        key = (entry.get('kubeconfig') or self._settings.kubeconfig,
               entry.get('context') or self._settings.context)
        process = self._processes.get(key)
        if process is not None and not process.alive():
            process.kill()
            process = None
        if process is None:
            process = self._processes[key] = BmcProcessHandle(
                *key, self._settings)
        return process

    def _find(self, name: str) -> BmcProcessHandle | None:
        return next((process for process in self._processes.values()
                     if name in process.entries), None)

    def stop(self, name: str) -> bool:
        process = self._find(name)
        if process is not None:
            process.stop(name)
        for key, idle in list(self._processes.items()):
            if not idle.entries:
                self._processes.pop(key).kill()
        return process is not None

    def state(self, name: str) -> tuple[str, str]:
        process = self._find(name)
        if process is None or not process.alive():
            return (self._upstream.ERROR,
                    'process has exited and is being restarted; see the log')
        try:
            return (self._upstream.RUNNING,
                    process.call('problems').get(name, ''))
        except self._upstream.VirtualBMCError as exc:
            return self._upstream.ERROR, str(exc)

    def close(self) -> None:
        while self._processes:
            self._processes.popitem()[1].kill()


def _serve(*arguments: typing.Any) -> None:
    """Run the child process.

    Its modules are imported after the fork: importing them in the daemon
    would not save memory, because reference counting copies shared pages.

    :param arguments: of `bmc_process.BmcProcess`
    """
    # The daemon's handlers would terminate its other children. An interrupt
    # from the terminal is handled by the daemon.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from vbmc_kubevirt import bmc_process
    bmc_process.main(*arguments)


class BmcProcessHandle:
    """Parent's side of a `bmc_process.BmcProcess`: starts and calls it.

    :param kubeconfig: path
    :param context: context name
    """

    def __init__(self, kubeconfig: str | None, context: str | None,
                 settings: config.Settings) -> None:
        from vbmc_kubevirt import upstream
        self._error = upstream.VirtualBMCError
        self._timeout = FIRST_CALL_SECONDS
        self.entries: set[str] = set()
        fork = multiprocessing.get_context('fork')
        self._pipe, child_pipe = fork.Pipe()
        # Exclude shared objects from garbage collection in the child, which
        # would copy their pages.
        gc.collect()
        gc.freeze()
        # The child watches a pidfd: end of file on the pipe does not show
        # that the daemon died, as the other children inherit its end too.
        daemon = os.pidfd_open(os.getpid())
        self._process = fork.Process(
            name='vbmcd-kubevirt-host', target=_serve, daemon=True,
            args=(child_pipe, daemon, kubeconfig, context,
                  settings.machine_options, settings.state_secret))
        self._process.start()
        os.close(daemon)
        gc.unfreeze()
        child_pipe.close()

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.is_alive()

    def start(self, entry: entries.Entry) -> None:
        """Serve an entry; raises an error if its port cannot be opened."""
        problem = self.call('start', entry)
        if problem is not None:
            raise self._error(problem)
        self.entries.add(entry['domain_name'])

    def stop(self, name: str) -> None:
        """Stop serving an entry."""
        self.entries.discard(name)
        if self.alive():
            self.call('stop', name)

    def call(self, name: str, *arguments: typing.Any) -> typing.Any:
        """Call a method of the `bmc_process.BmcProcess`.

        A process that does not respond in time is killed; `Driver.start`
        then starts a new one.

        :param name: name of the method
        :returns: its return value
        :raises: VirtualBMCError
        """
        try:
            self._pipe.send((name, *arguments))
            if not self._pipe.poll(self._timeout):
                raise EOFError()
            succeeded, result = self._pipe.recv()
            self._timeout = CALL_SECONDS
        except (EOFError, OSError):
            self.kill()
            raise self._error('The process that serves KubeVirt VMs does not '
                              'respond and is restarted')
        if not succeeded:
            raise self._error(result)
        return result

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()
