# SPDX-License-Identifier: Apache-2.0
"""Modules that are loaded when they are first used, if ever.

sushy-tools imports what all of its drivers need: OpenStack's SDK, libvirt's
library, requests. That is half of the memory of a process which uses one
driver that needs none of them. Here an import makes a module that loads
itself when something of it is asked for, so nothing is missing and nothing of
sushy-tools is changed.

`importlib.util.LazyLoader` would load at the second import already, which
asks for ``__spec__`` (CPython 3.11, import_ensure_initialized).
"""

import functools
import importlib.machinery
import sys
import threading


def load(*names):
    """Have modules loaded when something of them is used.

    To be called before they are imported. One that is not installed still
    fails at its import; one that cannot be loaded fails when it is used.

    :param names: full names. For those that are in use at once, as by
        ``from x import y`` or as the base of a class, it changes nothing.
    """
    sys.meta_path.insert(0, _Finder(names))


class _Finder:
    """For ``sys.meta_path``."""

    def __init__(self, names):
        self._names = frozenset(names)

    def find_spec(self, name, path=None, target=None):
        above = sys.modules.get(name.rpartition('.')[0])
        if above is not None and _waits(above):
            # What is below a package expects to find it loaded.
            getattr(above, '__loaded__', None)
        if name not in self._names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader:
    """Loads by another loader, when an attribute is missed.

    :param loader: the one that the package would have
    """

    def __init__(self, loader):
        self._loader = loader
        self._lock = threading.RLock()
        self._begun = False

    def __getattr__(self, name):
        # Of its resources and its sources.
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__getattr__ = functools.partial(self._missed, module)

    def _missed(self, module, name):
        # Others wait; the thread that loads goes on.
        with self._lock:
            if not self._begun:
                self._load(module)
            if _waits(module):
                raise AttributeError('module %r has no attribute %r' % (
                    module.__name__, name))
        return getattr(module, name)

    def _load(self, module):
        self._begun = True
        module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException:
            # The next one tries again.
            self._begun = False
            raise
        if _waits(module):
            del module.__getattr__


def _waits(module):
    """Whether a `_Loader` is still asked for what a module lacks."""
    hook = vars(module).get('__getattr__')
    return isinstance(hook, functools.partial) and isinstance(
        getattr(hook.func, '__self__', None), _Loader)
