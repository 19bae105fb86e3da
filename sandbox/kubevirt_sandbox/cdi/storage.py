# SPDX-License-Identifier: Apache-2.0
"""Storage of the content of claims, one sparse file each.

Every claim of the cluster has a folder with ``disk.img``, the raw disk, as CDI
and KubeVirt lay it out on a claim with a file system. Callers coordinate
writes.
"""
import pathlib
import shutil
import tempfile
import threading

DISK = 'disk.img'


class Storage:
    """The folders of all claims.

    :param folder: parent folder, created if missing; None: a temporary
        folder, created when needed and removed by :meth:`close`.
    """

    def __init__(self, folder=None):
        self._own = folder is None
        self._lock = threading.Lock()
        self._folder = None
        if folder is not None:
            self._folder = pathlib.Path(folder).resolve()
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def folder(self):
        """Return the folder of all claims."""
        with self._lock:
            if self._folder is None:
                self._folder = pathlib.Path(tempfile.mkdtemp(
                    prefix='sushy-kubevirt-sandbox-')).resolve()
            return self._folder

    def path(self, namespace, claim):
        """Return the path of a claim's disk, which need not exist.

        :param namespace: the claim's namespace.
        :param claim: its name; both are names that Kubernetes accepts.
        :returns: a :class:`pathlib.Path`.
        """
        for name in (namespace, claim):
            # Names of Kubernetes are none of these; never leave the folder.
            if not name or name.startswith('.') or '/' in name:
                raise ValueError(f'{name!r} is no name of an object')
        return self.folder / namespace / claim / DISK

    def provide(self, namespace, claim, size):
        """Return the disk of a claim; create an empty one if there is none.

        :param size: bytes, of a new disk.
        :returns: a :class:`pathlib.Path`.
        """
        path = self.path(namespace, claim)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            with open(path, 'xb') as file:
                file.truncate(size)
        return path

    def remove(self, namespace, claim):
        """Remove what a claim holds; no error when it holds nothing."""
        if self._folder is None:
            return
        shutil.rmtree(self.path(namespace, claim).parent,
                      ignore_errors=True)

    def close(self):
        """Remove the folder, if it is this object's own."""
        if self._own and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
