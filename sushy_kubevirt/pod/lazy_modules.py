# SPDX-License-Identifier: Apache-2.0
"""Lazy import: modules are loaded on first access to one of their attributes.

sushy-tools imports the dependencies of all its drivers: OpenStack's SDK,
libvirt, requests. Importing its application takes 55 MiB PSS and 0.7 s, and
21 MiB and 0.3 s with these modules deferred (CPython 3.11.7, sushy-tools
2.2.0, modules of `rare_modules`). sushy-tools is not changed.

Not `importlib.util.LazyLoader`, with which the memory is the same: until
CPython 3.11.9 and 3.12.3 a second thread finds the module empty while the
first one loads it (gh-114763), and each request has a thread here. It also
loads a module on its second import, which reads ``__spec__`` (CPython 3.11,
import_ensure_initialized): 7 of the 21 modules instead of 1. Not the package
lazy_loader, which defers imports only in code that calls it.
"""

import functools
import importlib.machinery
import sys
import threading


def load(*names):
    """Defer the loading of modules until they are used.

    Call it before they are imported. The import of a module that is not
    installed still fails; a module that cannot be loaded fails on first use.

    :param names: full names of modules. A module that is used during the
        import, by ``from x import y`` or as a base class, is loaded then.
    """
    sys.meta_path.insert(0, _Finder(names))


class _Finder:
    """Finder for ``sys.meta_path`` that makes listed modules lazy.

    :param names: full names of modules
    """

    def __init__(self, names):
        self._names = frozenset(names)

    def find_spec(self, name, path=None, target=None):
        parent = sys.modules.get(name.rpartition('.')[0])
        if parent is not None and _is_deferred(parent):
            # A submodule expects its package to be loaded; reading any
            # attribute loads it.
            getattr(parent, '__loaded__', None)
        if name not in self._names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader:
    """Runs another loader on the first access to a missing attribute.

    :param loader: loader of the module
    """

    def __init__(self, loader):
        self._loader = loader
        self._lock = threading.RLock()
        self._started = False

    def __getattr__(self, name):
        # Optional methods of loaders, such as get_source.
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__getattr__ = functools.partial(self._getattr, module)

    def _getattr(self, module, name):
        # Other threads wait until the module is loaded; the lock lets the
        # loading thread itself through.
        with self._lock:
            if not self._started:
                self._load(module)
            if _is_deferred(module):
                raise AttributeError(
                    f'module {module.__name__!r} has no attribute {name!r}')
        return getattr(module, name)

    def _load(self, module):
        self._started = True
        module.__spec__.loader = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException:
            # Retry on the next access.
            self._started = False
            raise
        if _is_deferred(module):
            del module.__getattr__


def _is_deferred(module):
    """Tell whether a module is not loaded, or not completely.

    :param module: module
    """
    hook = vars(module).get('__getattr__')
    return isinstance(hook, functools.partial) and isinstance(
        getattr(hook.func, '__self__', None), _Loader)
