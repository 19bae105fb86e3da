# SPDX-License-Identifier: Apache-2.0
"""virtualbmc's own libvirt driver, one process per entry."""

from __future__ import annotations

import argparse
import multiprocessing
from multiprocessing import process
import typing

if typing.TYPE_CHECKING:
    from vbmc_kubevirt import entries


class Driver:
    """Driver of libvirt domains; see the package for its methods."""

    options = ('libvirt_uri', 'libvirt_sasl_username',
               'libvirt_sasl_password')

    #: Without ``libvirt_uri``, which ``vbmc`` always sends.
    chosen = ('libvirt_sasl_username', 'libvirt_sasl_password')

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add nothing: ``vbmc`` defines libvirt's options itself."""

    def __init__(self) -> None:
        # Imported in the daemon only, see the package.
        from vbmc_kubevirt.ipmi import udp
        from vbmc_kubevirt import upstream
        self._upstream = upstream
        self._udp = udp
        self._processes: dict[str, process.BaseProcess] = {}

    def check(self, entry: entries.Entry) -> entries.Entry:
        self._upstream.check_libvirt(entry)
        return entry

    def start(self, entry: entries.Entry) -> bool:
        name = entry['domain_name']
        process = self._processes.get(name)
        if process is not None and process.is_alive():
            return False
        # Check the port here: the process could only log the error.
        try:
            self._udp.open_socket(entry['address'], entry['port']).close()
        except OSError as exc:
            raise self._upstream.VirtualBMCError(exc.strerror)
        self._upstream.load_libvirt()
        options = dict.fromkeys(self.options) | entry
        process = multiprocessing.get_context('fork').Process(
            name=f'vbmcd-managing-domain-{name}',
            target=self._upstream.serve_libvirt, args=(options,), daemon=True)
        process.start()
        self._processes[name] = process
        return True

    def stop(self, name: str) -> bool:
        process = self._processes.pop(name, None)
        if process is None:
            return False
        process.terminate()
        process.join(5)
        process.kill()
        return True

    def state(self, name: str) -> tuple[str, str]:
        process = self._processes.get(name)
        if process is not None and process.is_alive():
            return self._upstream.RUNNING, ''
        return self._upstream.ERROR, 'process has exited; see the log'

    def close(self) -> None:
        for name in list(self._processes):
            self.stop(name)
