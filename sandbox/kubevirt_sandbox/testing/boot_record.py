# SPDX-License-Identifier: Apache-2.0
"""Records what the VMs of a given cluster boot, from their VMIs.

A cluster does not tell what a guest has booted, but the spec of its VMI has
what KubeVirt asks of the firmware: the order of the devices, their media and
the bootloader. `firmware.boot` reads it, as it does for the sandbox's guests.
So the record is that of a sandbox, except that a guest that reboots within
its VMI is not in it.
"""

import collections
import json
import threading
import time

import fixtures
import requests

from kubevirt_sandbox.kubevirt import firmware

# Seconds after which a watch is renewed, and until its thread has ended.
_WATCH_SECONDS = 5


class BootRecord(fixtures.Fixture):
    """The boots in one namespace since the fixture was set up.

    :param request: function of method, path and options of `requests`
    :param where: path of the collection of VMIs
    """

    def __init__(self, request, where):
        super().__init__()
        self._request = request
        self._where = where

    def _setUp(self):
        self._boots = collections.defaultdict(list)
        self._uids = set()
        self._changed = threading.Condition()
        self._ended = False
        self.addCleanup(self._end)
        version = self._list()
        threading.Thread(target=self._run, args=(version,),
                         daemon=True).start()

    def of(self, name):
        """List the boots of a VM, oldest first.

        :returns: list of dicts with ``device``, ``class``, ``firmware``,
            ``vmi`` (uid), ``cause`` (always ``start``) and ``tried``, as in a
            sandbox's record
        """
        found = self._request('GET', self._where, params={
            'fieldSelector': 'metadata.name=' + name}, expect=200).json()
        uids = {vmi['metadata']['uid'] for vmi in found['items']
                if _runs(vmi)}
        with self._changed:
            # The list may be ahead of the watch.
            if not self._changed.wait_for(lambda: uids <= self._uids,
                                          _WATCH_SECONDS * 2):
                raise AssertionError(f'no watch event of {name}')
            return list(self._boots[name])

    def wait(self, name, count, timeout):
        """Wait until a VM has booted a number of times in total.

        :param timeout: seconds
        :returns: the latest boot
        """
        with self._changed:
            if self._changed.wait_for(
                    lambda: len(self._boots[name]) >= count, timeout):
                return self._boots[name][-1]
            raise AssertionError(
                f'{name}: {len(self._boots[name])} VMIs ran after '
                f'{timeout:g} s, not {count}: {self._boots[name]}')

    def _end(self):
        self._ended = True

    def _run(self, version):
        while not self._ended:
            try:
                version = self._watch(version) or self._list()
            except (requests.RequestException, AssertionError, ValueError):
                time.sleep(0.1)

    def _list(self):
        """:returns: resource version"""
        found = self._request('GET', self._where, expect=200).json()
        for vmi in found['items']:
            self._look(vmi)
        return found['metadata']['resourceVersion']

    def _watch(self, version):
        """:returns: resource version to continue from; None if it expired"""
        with self._request('GET', self._where, params={
                'watch': 'true', 'resourceVersion': version,
                'timeoutSeconds': _WATCH_SECONDS}, stream=True, expect=200,
                timeout=_WATCH_SECONDS * 2) as response:
            # A chunk of the response is read as soon as it arrives.
            for line in response.iter_lines(chunk_size=2 ** 16):
                event = json.loads(line)
                if event['type'] == 'ERROR':
                    return None
                version = event['object']['metadata']['resourceVersion']
                if event['type'] in ('ADDED', 'MODIFIED'):
                    self._look(event['object'])
        return version

    def _look(self, vmi):
        uid, name = vmi['metadata']['uid'], vmi['metadata']['name']
        if not _runs(vmi) or uid in self._uids:
            return
        found = firmware.boot(vmi)
        with self._changed:
            self._uids.add(uid)
            self._boots[name].append({
                'device': found.device, 'class': found.class_,
                'firmware': found.firmware, 'vmi': uid, 'cause': 'start',
                'tried': list(found.tried)})
            self._changed.notify_all()


def _runs(vmi):
    """Tell whether a VMI's guest runs; one that starts paused does not."""
    status = vmi.get('status') or {}
    return status.get('phase') == 'Running' and not any(
        one['type'] == 'Paused' and one['status'] == 'True'
        for one in status.get('conditions') or ())
