# SPDX-License-Identifier: Apache-2.0
"""The volumes of a pod, as folders.

Files of Secrets, ConfigMaps and projections are updated as by the kubelet:
each version is in a folder of its own, and ``..data`` is a link to the current
one that is replaced atomically. The paths that programs open lead through
``..data``.

Source: kubernetes/pkg/volume/util/atomic_writer.go (1.36) and
pkg/volume/emptydir/empty_dir.go (1.34).
"""

import contextlib
import os
import pathlib
import shutil
import tempfile

from kubevirt_sandbox.api import core
from kubevirt_sandbox.workloads import fields

_DATA = '..data'


class Unknown(Exception):
    """The sandbox does not support the type of a volume."""


def _safe(path):
    parts = pathlib.PurePosixPath(path)
    if parts.is_absolute() or '..' in parts.parts or not parts.parts or (
            parts.parts[0].startswith('..')):
        raise fields.Missing(f'invalid path of a file: {path!r}')
    return str(parts)


def write(folder, files, group=None):
    """Write files into a folder atomically.

    :param folder: a :class:`pathlib.Path`, created if missing.
    :param files: ``{path below it: (bytes, mode)}``.
    :param group: gid of a group that may read them; None for none.
    :returns: whether anything changed.
    """
    if group is not None:
        files = {path: (content, mode | 0o440)
                 for path, (content, mode) in files.items()}
    _make_folder(folder)
    link = folder / _DATA
    old = folder / os.readlink(link) if link.is_symlink() else None
    if old is not None and _read(old) == files:
        return False
    made = pathlib.Path(tempfile.mkdtemp(prefix='..', dir=folder))
    made.chmod(0o755)
    for path, (content, mode) in files.items():
        target = made / path
        _make_folder(target.parent)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, 'wb') as file:
            file.write(content)
            if group is not None and os.geteuid() == 0:
                os.fchown(file.fileno(), -1, group)
            os.fchmod(file.fileno(), mode)
    unfinished = folder / '..data_tmp'
    with contextlib.suppress(FileNotFoundError):
        unfinished.unlink()
    unfinished.symlink_to(made.name)
    os.replace(unfinished, link)
    tops = {pathlib.PurePosixPath(path).parts[0] for path in files}
    for name in tops:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f'{_DATA}/{name}')
    for one in folder.iterdir():
        if not one.name.startswith('..') and one.name not in tops:
            one.unlink()
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _make_folder(path):
    # Independent of the umask: a container may run as another user.
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o755)


def _read(folder):
    found = {}
    for path in folder.rglob('*'):
        if path.is_file():
            found[str(path.relative_to(folder))] = (
                path.read_bytes(), path.stat().st_mode & 0o777)
    return found


class Volumes:
    """All volumes of one pod.

    :param folder: folder of the volumes, a :class:`pathlib.Path`.
    :param spec: the pod's spec.
    :param values: a :class:`fields.Fields`.
    :param token: function of a ``serviceAccountToken`` that returns it.
    :param group: ``fsGroup``; None for none.
    """

    def __init__(self, folder, spec, values, token, group=None):
        self._folder = folder
        self._spec = spec
        self._fields = values
        self._token = token
        self._group = group

    def write(self):
        """Write new and changed volumes.

        :returns: whether anything changed.
        :raises fields.Missing: a referenced object or key is missing.
        :raises Unknown: the sandbox does not support a volume's type.
        """
        changed = False
        for volume in self._spec.get('volumes') or ():
            place = self._folder / volume['name']
            files = self._files(volume)
            if files is None:
                place.mkdir(parents=True, exist_ok=True)
                # Independent of the umask; there is no sticky bit.
                place.chmod(0o777)
            else:
                changed = write(place, files, self._group) or changed
        return changed

    def places(self, container):
        """Return the folders of a container's mounts.

        :param container: its spec.
        :returns: ``{mountPath: pathlib.Path}``
        """
        found = {}
        for mount in container.get('volumeMounts') or ():
            place = self._folder / mount['name']
            if mount.get('subPath'):
                place /= _safe(mount['subPath'])
                if not place.exists():
                    place.mkdir(parents=True)
            found[mount['mountPath']] = place
        return found

    def _files(self, volume):
        """Return the files of a volume; None for one that is only a folder."""
        if 'emptyDir' in volume:
            return None
        if 'secret' in volume:
            return self._keyed(core.SECRET, volume['secret'], volume[
                'secret'].get('secretName', ''))
        if 'configMap' in volume:
            return self._keyed(core.CONFIG_MAP, volume['configMap'], volume[
                'configMap'].get('name', ''))
        if 'downwardAPI' in volume:
            return self._downward(volume['downwardAPI'])
        if 'projected' in volume:
            return self._projected(volume['projected'])
        kind = next((key for key in volume if key != 'name'), 'emptyDir')
        if kind == 'emptyDir':
            return None
        raise Unknown(f'volumes of kind {kind} are not there in the sandbox')

    def _keyed(self, kind, source, name, mode=None):
        mode = source.get('defaultMode', mode or 0o644)
        optional = source.get('optional', False)
        data = self._fields.data(kind, name, optional)
        if data is None:
            return {}
        if not source.get('items'):
            return {_safe(key): (value, mode) for key, value in data.items()}
        found = {}
        for item in source['items']:
            if item['key'] in data:
                found[_safe(item['path'])] = (
                    data[item['key']], item.get('mode', mode))
            elif not optional:
                raise fields.Missing(
                    f'references non-existent {kind.singular} key: '
                    f'{item["key"]}')
        return found

    def _downward(self, source, mode=None):
        mode = source.get('defaultMode', mode or 0o644)
        return {
            _safe(item['path']): (self._fields.field(
                (item.get('fieldRef') or {}).get('fieldPath', '')).encode(),
                item.get('mode', mode))
            for item in source.get('items') or ()}

    def _projected(self, source):
        mode, found = source.get('defaultMode', 0o644), {}
        for one in source.get('sources') or ():
            if 'secret' in one:
                found |= self._keyed(core.SECRET, one['secret'], one[
                    'secret'].get('name', ''), mode)
            elif 'configMap' in one:
                found |= self._keyed(core.CONFIG_MAP, one['configMap'], one[
                    'configMap'].get('name', ''), mode)
            elif 'downwardAPI' in one:
                found |= self._downward(one['downwardAPI'], mode)
            elif 'serviceAccountToken' in one:
                found[_safe(one['serviceAccountToken'].get(
                    'path', 'token'))] = (self._token(
                        one['serviceAccountToken']).encode(), 0o600)
            else:
                raise Unknown(f'{next(iter(one), "nothing")} is not '
                              'projected in the sandbox')
        return found
