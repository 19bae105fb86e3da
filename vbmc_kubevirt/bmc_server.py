# SPDX-License-Identifier: Apache-2.0
"""One VM and its BMC, joined: what a process that serves BMCs is made of.

Where the port, the user name and the password come from, and how many BMCs
there are, is left to those: the daemon's `host`, a pod's `pod`.
"""

import asyncio
import functools
from importlib import metadata
import re
import threading
import time

from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine import cluster
from vbmc_kubevirt import bmc
from vbmc_kubevirt.ipmi import server

#: A connection that cannot be described is not tried more often than this.
RETRY_SECONDS = 10


class Link:
    """The connection that all entries share, made when first needed.

    :param kubeconfig: path, or None
    :param context: name, or None
    """

    def __init__(self, kubeconfig, context):
        self._make = functools.partial(
            connection.Connection.from_options, kubeconfig, context)
        self._lock = threading.Lock()
        self._connection = None
        self._failure = None
        self._failed_at = 0.0

    def get(self):
        """:raises: `errors.ConfigError`"""
        with self._lock:
            if self._connection is None:
                # To read a kubeconfig takes a process of its own.
                if (self._failure is not None and
                        time.monotonic() < self._failed_at + RETRY_SECONDS):
                    raise self._failure
                try:
                    self._connection = self._make()
                except errors.ConfigError as exc:
                    self._failure = exc.with_traceback(None)
                    self._failed_at = time.monotonic()
                    raise
            return self._connection


class Entry:
    """One VM and its BMC.

    :param link: `Link`
    :param options: `options.Options`
    :param name: for the log
    :param vm: 'namespace/name'
    :param account: see `ipmi.server.Server`
    :ivar bmc: `bmc.Bmc`
    :ivar server: `ipmi.server.Server`, once it is started
    """

    def __init__(self, link, options, name, vm, account):
        self.name = name
        self.server = None
        self._vm = vm
        self._account = account
        self._link = link
        self._options = options
        self._lock = threading.Lock()
        self._cluster = None
        self._closed = False
        self.bmc = bmc.Bmc(self.name, self._find, version(), self._reset)

    def _find(self):
        with self._lock:
            if self._cluster is None:
                if self._closed:
                    raise errors.Unavailable('This BMC was stopped')
                # Its own, and of this VM alone: access rights may name it.
                self._cluster = cluster.Cluster(
                    self._link.get(), options=self._options, vm=self._vm)
        return self._cluster.machine(self._vm)

    @property
    def cluster(self):
        """The `cluster.Cluster`; None before there is a way to it."""
        return self._cluster

    def start(self, sock, readers, writers):
        """Serve a bound socket, see `ipmi.server.Server`."""
        self.server = server.Server(
            self.name, self._account, self.bmc.commands, self.bmc.guid,
            readers, writers)
        self.server.start(sock)

    async def watch(self, executor):
        """See to it that a BMC is watching its VM also if nobody asks: what
        a one-time boot changed is put back by who watches.

        :param executor: for what blocks
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(executor, self.bmc.machine)
                return
            except errors.ConfigError as exc:
                self.bmc.note(exc)
            except errors.MachineError as exc:
                self.bmc.note(exc)
                # It watches, or tries to.
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _reset(self, session):
        # After the answer is on its way.
        asyncio.get_running_loop().call_soon(self.server.end_sessions)

    def stop(self):
        self.server.stop()

    def close(self):
        """Let go of the cluster. May block."""
        with self._lock:
            self._closed = True
            if self._cluster is not None:
                self._cluster.close()


@functools.cache
def version():
    """:returns: (major, minor) of this program"""
    try:
        numbers = re.findall(r'\d+', metadata.version('sushy-kubevirt'))
    except metadata.PackageNotFoundError:
        return 0, 0
    return int(numbers[0]), int(numbers[1])
