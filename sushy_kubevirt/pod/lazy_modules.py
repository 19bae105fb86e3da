# SPDX-License-Identifier: Apache-2.0
"""Lazy import: modules are loaded on first access to one of their attributes.

The statement ``from module import name`` is such an access. For names that are
listed, it gives a `Name` instead, which loads the module when it is used.

sushy-tools imports the dependencies of all its drivers: OpenStack's SDK,
libvirt, requests. Importing its application takes 58 MiB PSS and 0.7 s of CPU,
22 MiB and 0.21 s with these modules deferred, and 17 MiB and 0.15 s with names
(CPython 3.11.7, sushy-tools 2.2.0, lists of `rare_modules`). sushy-tools is
not changed.

Not `importlib.util.LazyLoader`, with which the memory is the same: until
CPython 3.11.9 and 3.12.3 a second thread finds the module empty while the
first one loads it (gh-114763), and each request has a thread here. It also
loads a module on its second import, which reads ``__spec__`` (CPython 3.11,
import_ensure_initialized): 7 of the 21 modules instead of 1. Not the package
lazy_loader, which defers imports only in code that calls it.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import threading


def load(*modules, names=None) -> None:
    """Defer the loading of modules until they are used.

    Call it before they are imported. The import of a module that is not
    installed still fails; a module that cannot be loaded fails on first use.

    :param modules: full names of modules. A module that is used during the
        import, by ``from x import y`` or as a base class, is loaded then.
    :param names: dict of the full names of other modules to tuples of the
        functions and classes that importers take from them. These are `Name`
        until the module is loaded.
    """
    names = names or {}
    sys.meta_path.insert(0, _Finder({**dict.fromkeys(modules, ()), **names}))


class Name:
    """A function or class of a module that is not loaded yet.

    It can be called, be the base of a class, be asked for attributes, and be
    used with isinstance and issubclass, each of which loads the module.

    :param module: the deferred module
    :param name: of the attribute
    """

    def __init__(self, module, name) -> None:
        self._module = module
        self._name = name

    def _found(self):
        # An attribute that is missing in a deferred module loads it.
        getattr(self._module, '__loaded__', None)
        return getattr(self._module, self._name)

    def __call__(self, *args, **kwargs):
        return self._found()(*args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._found(), name)

    def __mro_entries__(self, bases):
        return (self._found(),)

    def __instancecheck__(self, instance) -> bool:
        return isinstance(instance, self._found())

    def __subclasscheck__(self, subclass) -> bool:
        return issubclass(subclass, self._found())


class _Finder:
    """Finder for ``sys.meta_path`` that makes listed modules lazy.

    :param names: dict of full names of modules to tuples of their names that
        are made `Name`
    """

    def __init__(self, names) -> None:
        self._names = names

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
            spec.loader = _Loader(spec.loader, self._names[name])
        return spec


class _Loader:
    """Runs another loader on the first access to a missing attribute.

    :param loader: loader of the module
    :param names: tuple of its attributes that are `Name` until it is loaded
    """

    def __init__(self, loader, names) -> None:
        self._loader = loader
        self._names = names
        self._lock = threading.RLock()
        self._started = False

    def __getattr__(self, name):
        # Optional methods of loaders, such as get_source.
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__getattr__ = functools.partial(self._getattr, module)

    def _getattr(self, module, name):
        if name in self._names and not self._started:
            return Name(module, name)
        if name == '__path__':
            # ``from module import name`` asks whether it is a package.
            raise AttributeError(name)
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
