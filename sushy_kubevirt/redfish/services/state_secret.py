# SPDX-License-Identifier: Apache-2.0
"""Settings and subscriptions, kept in one Secret of Kubernetes.

What clients may set about the services themselves (and not about a VM, which
keeps its own) has to survive a restart and be the same for every worker. It
lies in sections, each a JSON object under a key of one Secret. The rights for
it name it: ``get`` and ``patch``. Where it is not made beforehand the first
write makes it, which takes the right to create any Secret.

Reads cost no API call: what is held is renewed aside, now and then, for
changes made on other hosts; the workers of one emulator tell each other over
the `bus`. What a section holds is the affair of whose section it is.
"""

import base64
import binascii
import copy
import json
import logging
import os
import threading
import time
import weakref

from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import retry

LOG = logging.getLogger(__name__)

#: Name of the Secret where an emulator serves several VMs, and its ending
#: where it serves one.
NAME = 'sushy-kubevirt-state'
ENDING = '-bmc-state'

#: Value of its label app.kubernetes.io/managed-by.
MANAGER = 'sushy-kubevirt'

#: What is held is read again after so many seconds, when somebody asks.
AGE = 30

#: Seconds before the next try after one that failed.
PAUSE = 2

#: Bytes of all sections; Kubernetes allows a Secret 1 MiB.
LONGEST = 700 * 1024

_TOPIC = 'state'

_states = weakref.WeakSet()


def place(cluster, wanted=None):
    """Where the Secret is.

    :param cluster: a `cluster.Cluster`
    :param wanted: 'namespace/name', if the configuration says
    :returns: (namespace, name)
    """
    if wanted:
        return tuple(wanted.split('/', 1))
    if cluster.vm:
        return cluster.vm[0], cluster.vm[1] + ENDING
    return cluster.default_namespace, NAME


class StateSecret:
    """The Secret. Safe to use from several threads.

    :param cluster: a `cluster.Cluster`. One that is about a single VM makes
        that the Secret's owner, so that they go together.
    :param where: (namespace, name) of the Secret
    :param bus: a `bus.Bus`, or None for a process that has no others
    """

    def __init__(self, cluster, where, bus=None):
        self._cluster = cluster
        self._where = where
        self._bus = bus
        self._callbacks = []
        self._warned = False
        self.after_fork()
        if bus is not None:
            bus.subscribe(_TOPIC, self._on_published)
        _states.add(self)

    def after_fork(self):
        """Forget what a thread of the parent may have been about."""
        self._lock = threading.Lock()
        self._asking = False
        self._again = False
        self._held = None
        self._held_at = self._renewed_at = 0

    def __str__(self):
        return 'Secret %s/%s' % self._where

    # Reading

    def read(self, section, fresh=False):
        """Read a section.

        :param section: its name
        :param fresh: whether to ask the API in any case
        :returns: dict, shared: not to be changed; {} if there is none
        :raises: `errors.MachineError` if nothing is known yet, or fresh is
            asked for, and the API does not answer
        """
        if fresh or self._held is None:
            self._read()
        return self.known(section)

    def known(self, section):
        """A section as far as it is known: at once, without an error.

        :returns: dict, shared: not to be changed; {} while it is not known
        """
        if (self._held is None
                or time.monotonic() - self._renewed_at > AGE):
            self._refresh_in_thread()
        return (self._held or {}).get(section) or {}

    def subscribe(self, callback):
        """Be told, without arguments, when something may have changed.

        :param callback: called in whatever thread brought the news
        """
        self._callbacks.append(callback)

    # Writing

    def update(self, section, edit):
        """Change a section, guarded against changes of others.

        :param section: its name, of letters, digits, ``-``, ``_`` and ``.``
        :param edit: function that is given the section, a dict, and changes
            it. It may be called several times, and with what it has written
            before (when the answer to that was lost).
        :returns: the section as it is now, shared
        :raises: `errors.MachineError`; whatever edit raises
        """
        secret, changed = retry.run(
            lambda: self._update(section, edit), self._cluster.options,
            self._cluster.closing)
        self._take(secret, time.monotonic())
        if changed and self._bus is not None:
            self._bus.publish(
                _TOPIC, {'version': secret['metadata']['resourceVersion']})
        return self.known(section)

    def _update(self, section, edit):
        """One try. :returns: (the Secret, whether it was changed)"""
        owner = self._owner()
        secret = self._get()
        sections = self._sections(secret, owner)
        before = sections.get(section) or {}
        after = copy.deepcopy(before)
        edit(after)
        if after == before and secret is not None:
            return secret, False
        sections[section] = after
        data = {name: _encode(value) for name, value in sections.items()}
        if sum(map(len, data.values())) > LONGEST:
            raise errors.Rejected(
                f'{self} holds as much as it can; delete something first')
        if secret is None:
            return self._create(data, owner), True
        return self._patch(secret, data, owner), True

    def _create(self, data, owner):
        namespace, name = self._where
        metadata = {'name': name, 'namespace': namespace, 'labels': {
            'app.kubernetes.io/managed-by': MANAGER}}
        if owner:
            metadata['ownerReferences'] = [owner]
        try:
            return self._cluster.client.create(
                api_resources.SECRET,
                namespace,
                {
                    'apiVersion': api_resources.SECRET.api_version,
                    'kind': api_resources.SECRET.kind,
                    'type': 'Opaque',
                    'metadata': metadata,
                    'data': data,
                },
            )
        except errors.AccessDenied as e:
            try:
                self._cluster.client.get(api_resources.SECRET, *self._where)
            except errors.ObjectNotFound:
                pass
            else:
                raise errors.Conflict(f'{self} is there by now') from None
            # Whoever gave the other rights makes it, the operator at once.
            raise errors.Unavailable(
                '%s is not there, and this account may not make it: make '
                'one of type Opaque (%s)' % (self, e)) from None

    def _patch(self, secret, data, owner):
        operations = [
            {'op': 'test', 'path': '/metadata/resourceVersion',
             'value': secret['metadata']['resourceVersion']},
            {'op': 'add', 'path': '/data', 'value': data}]
        if owner:
            operations.append({'op': 'add', 'value': [owner],
                               'path': '/metadata/ownerReferences'})
        try:
            return self._cluster.client.patch(
                api_resources.SECRET, *self._where, operations
            )
        except errors.ObjectNotFound as e:
            raise errors.Conflict(str(e)) from None

    # What lies behind

    def _owner(self):
        """The reference to the only VM there is; None for several.

        :raises: `errors.MachineNotFound`
        """
        if not self._cluster.vm:
            return None
        machine = self._cluster.machine('/'.join(self._cluster.vm))
        return {'apiVersion': api_resources.VM.api_version,
                'kind': api_resources.VM.kind, 'name': machine.name,
                'uid': machine.uid}

    def _get(self):
        """:returns: the Secret; None if there is none"""
        try:
            return self._cluster.client.get(api_resources.SECRET, *self._where)
        except errors.ObjectNotFound:
            return None
        except errors.AccessDenied as e:
            # Nothing can have been kept with these rights. A write tells.
            if not self._warned:
                self._warned = True
                LOG.warning('Nothing can be kept about services: %s', e)
            return None

    def _sections(self, secret, owner):
        if secret is None:
            return {}
        owners = secret['metadata'].get('ownerReferences') or ()
        if owner and not any(each.get('uid') == owner['uid']
                             for each in owners):
            # It belongs to a VM that had the name before.
            return {}
        return {name: _decode(text, name, self)
                for name, text in (secret.get('data') or {}).items()}

    def _read(self):
        asked_at = time.monotonic()
        self._take(self._get(), asked_at)

    def _take(self, secret, asked_at):
        """Hold what the API said, unless something said later is held."""
        try:
            owner = self._owner()
        except errors.MachineNotFound:
            secret = owner = None
        sections = self._sections(secret, owner)
        with self._lock:
            if asked_at < self._held_at:
                return
            changed = sections != self._held
            self._held = sections
            self._held_at = self._renewed_at = asked_at
        if changed:
            for callback in tuple(self._callbacks):
                callback()

    def _on_published(self, news):
        """Another worker has written."""
        self._refresh_in_thread(again=True)

    def _refresh_in_thread(self, again=False):
        """Have a thread read it. :param again: even if one does already"""
        with self._lock:
            self._again = self._again or again
            if self._asking:
                return
            self._asking = True
        threading.Thread(target=self._ask, daemon=True,
                         name='state').start()

    def _ask(self):
        while True:
            self._again = False
            try:
                self._read()
            except errors.MachineError as e:
                LOG.info('%s could not be read: %s', self, e)
                # Not with each read of those that come.
                self._renewed_at = time.monotonic() - AGE + PAUSE
            with self._lock:
                if not self._again:
                    self._asking = False
                    return


def _encode(section):
    text = json.dumps(section, separators=(',', ':'), sort_keys=True)
    return base64.b64encode(text.encode()).decode()


def _decode(text, name, state):
    try:
        section = json.loads(base64.b64decode(text))
    except (binascii.Error, ValueError, RecursionError):
        section = None
    if not isinstance(section, dict):
        LOG.warning('Key %s of %s is nothing of ours; left out', name, state)
        return {}
    return section


def _after_fork():
    for state in list(_states):
        state.after_fork()


os.register_at_fork(after_in_child=_after_fork)
