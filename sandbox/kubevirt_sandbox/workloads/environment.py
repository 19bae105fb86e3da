# SPDX-License-Identifier: Apache-2.0
"""Command and environment of containers without a file system.

The sandbox needs no privileges, so a container has neither a root file system
nor a network namespace. Instead, in the arguments of the command and in the
values of variables

- the path of a mount is replaced by the folder with its content, where it
  begins a word or follows a delimiter such as ``=`` or ``:``;
- ``0.0.0.0`` and ``[::]`` are replaced by the pod's address, since a server
  that listens on all addresses of a pod listens there.

Programs with a built-in path are configured by variables: ``KUBECONFIG`` names
a kubeconfig with the pod's service account, ``SUSHY_KUBEVIRT_ACCOUNT`` the
folder with its token, and ``TMPDIR`` the folder mounted at ``/tmp``. Programs
are searched in the folder of ``--programs`` first, then in the running
interpreter's environment.
"""

import os
import re
import sys

from kubevirt_sandbox.api import core

_REFERENCE = re.compile(r'\$\$|\$\(([A-Za-z_][-A-Za-z0-9_.]*)\)')
_NAME = re.compile(r'[A-Za-z_.-][-A-Za-z0-9_.]*')
_EVERYWHERE = re.compile(r'(?<![\w.:])0\.0\.0\.0(?![\w./])|\[::\](?!/)')

#: Variables of this process that are passed on, to find its programs.
_KEPT = ('PYTHONPATH', 'LD_LIBRARY_PATH', 'VIRTUAL_ENV')


def expand(text, variables):
    """Replace ``$(NAME)`` by values; ``$$`` is a literal ``$``.

    :param variables: dict; a name that it lacks stays as it is written.
    """
    def value(match):
        if match[0] == '$$':
            return '$'
        return variables.get(match[1], match[0])
    return _REFERENCE.sub(value, text)


class Places:
    """The folders and the address that replace those of a pod.

    :param mounts: ``{mountPath: folder}``.
    :param address: the pod's.
    """

    def __init__(self, mounts, address):
        self._mounts = {path.rstrip('/') or '/': str(folder)
                        for path, folder in mounts.items()}
        self._address = address
        paths = sorted((p for p in self._mounts if p != '/'), key=len,
                       reverse=True)
        self._pattern = paths and re.compile(
            rf"(?<![\w./-])({'|'.join(map(re.escape, paths))})(?![\w.-])")

    def real(self, text):
        """Replace the paths of mounts in a text by their folders."""
        if self._pattern:
            text = self._pattern.sub(
                lambda match: self._mounts[match[1]], text)
        return _EVERYWHERE.sub(self._address, text)


def variables(container, fields):
    """Return the variables of a container's spec.

    :param container: its spec.
    :param fields: a :class:`fields.Fields`.
    :raises fields.Missing: a referenced object or key does not exist.
    """
    found = {}
    for source in container.get('envFrom') or ():
        prefix = source.get('prefix', '')
        for name, kind in (('secretRef', core.SECRET),
                           ('configMapRef', core.CONFIG_MAP)):
            if name in source:
                data = fields.data(kind, source[name].get('name', ''),
                                   source[name].get('optional', False))
                for key, value in (data or {}).items():
                    if _NAME.fullmatch(prefix + key):
                        found[prefix + key] = value.decode(errors='replace')
    for entry in container.get('env') or ():
        source = entry.get('valueFrom')
        if not source:
            value = expand(entry.get('value', ''), found)
        elif 'secretKeyRef' in source:
            value = fields.key(core.SECRET, source['secretKeyRef'])
        elif 'configMapKeyRef' in source:
            value = fields.key(core.CONFIG_MAP, source['configMapKeyRef'])
        elif 'fieldRef' in source:
            value = fields.field(source['fieldRef'].get('fieldPath', ''))
        elif 'resourceFieldRef' in source:
            value = fields.resource(source['resourceFieldRef'], container)
        else:
            value = None
        if value is not None:
            found[entry['name']] = value.replace('\0', '')
    return found


def base(home, pod_name, api, programs=None):
    """Return the variables that every container has.

    :param home: folder of the container.
    :param api: (address, port) of the API server.
    :param programs: path of a folder that begins ``PATH``, or None.
    """
    folders = [programs] if programs else []
    folders += [os.path.dirname(sys.executable),
                os.environ.get('PATH', os.defpath)]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, 'PATH': os.pathsep.join(folders),
            'HOME': str(home), 'TMPDIR': str(home), 'HOSTNAME': pod_name,
            'LANG': 'C.UTF-8', 'PYTHONUNBUFFERED': '1',
            'KUBERNETES_SERVICE_HOST': api[0],
            'KUBERNETES_SERVICE_PORT': str(api[1]),
            'KUBERNETES_SERVICE_PORT_HTTPS': str(api[1])}


def make(container, given, more, places):
    """Return the command and the environment of a container.

    :param container: its spec.
    :param given: from :func:`variables`.
    :param more: from :func:`base`, and others.
    :param places: a :class:`Places`.
    :returns: (list of words, dict)
    """
    # Their paths are real ones already.
    env = {**more, **{name: places.real(value)
                      for name, value in given.items()}}
    plain = {**more, **given}
    words = [places.real(expand(word, plain)) for word in (
        *(container.get('command') or ()), *(container.get('args') or ()))]
    return words, env
