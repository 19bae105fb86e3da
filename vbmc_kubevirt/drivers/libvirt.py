# SPDX-License-Identifier: Apache-2.0
"""virtualbmc's own libvirt BMC, a process for each entry as ever."""

import multiprocessing


class Driver:
    """Entries of libvirt domains."""

    options = ('libvirt_uri', 'libvirt_sasl_username',
               'libvirt_sasl_password')

    #: ``vbmc`` always sends a ``libvirt_uri``.
    chosen = ('libvirt_sasl_username', 'libvirt_sasl_password')

    @staticmethod
    def add_arguments(parser):
        """The options are in ``vbmc`` already."""

    def __init__(self):
        # See the package: for the daemon only.
        from vbmc_kubevirt.ipmi import udp_port
        from vbmc_kubevirt import upstream
        self._upstream = upstream
        self._udp_port = udp_port
        self._processes = {}

    def check(self, entry):
        self._upstream.check_libvirt(entry)
        return entry

    def start(self, entry):
        name = entry['domain_name']
        process = self._processes.get(name)
        if process is not None and process.is_alive():
            return False
        # The process can only say in the log that it has no port.
        try:
            self._udp_port.open_socket(entry['address'], entry['port']).close()
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

    def stop(self, name):
        process = self._processes.pop(name, None)
        if process is None:
            return False
        process.terminate()
        process.join(5)
        process.kill()
        return True

    def state(self, name):
        process = self._processes.get(name)
        if process is not None and process.is_alive():
            return self._upstream.RUNNING, ''
        return self._upstream.ERROR, 'its process ended; see the log'

    def close(self):
        for name in list(self._processes):
            self.stop(name)
