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

from collections import abc
import functools
import importlib.machinery
import sys
import threading
import types
import typing

if typing.TYPE_CHECKING:
    import importlib.abc


def load(*modules: str,
         names: abc.Mapping[str, tuple[str, ...]] | None = None,
         packages: tuple[str, ...] = ()) -> None:
    """Defer the loading of modules until they are used.

    Call it before they are imported. The import of a module that is not
    installed still fails; a module that cannot be loaded fails on first use.

    :param modules: full names of modules. A module that is used during the
        import, by ``from x import y`` or as a base class, is loaded then.
    :param names: by the full names of other modules: the functions and classes
        that importers take from them. These are `Name` until the module is
        loaded.
    :param packages: full names of packages: all modules in them and in their
        subpackages. The import of a module loads its package.
    """
    sys.meta_path.insert(0, _Finder(
        {**dict.fromkeys(modules, ()), **(names or {})},
        tuple(f'{package}.' for package in packages)))


class Name:
    """A function or class of a module that is not loaded yet.

    It can be called, be the base of a class, be asked for attributes, and be
    used with isinstance and issubclass, each of which loads the module.

    :param module: the deferred module
    :param name: of the attribute
    """

    def __init__(self, module: types.ModuleType, name: str) -> None:
        self._module = module
        self._name = name

    def _loaded(self) -> typing.Any:
        # An attribute that is missing in a deferred module loads it.
        getattr(self._module, '__loaded__', None)
        return getattr(self._module, self._name)

    def __call__(self, *args: typing.Any,
                 **kwargs: typing.Any) -> typing.Any:
        return self._loaded()(*args, **kwargs)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._loaded(), name)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (self._loaded(),)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._loaded())

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._loaded())


class _Finder:
    """Finder for ``sys.meta_path`` that makes listed modules lazy.

    :param names: by the full names of modules: what is made `Name`
    :param packages: beginnings of the full names of other modules
    """

    def __init__(self, names: abc.Mapping[str, tuple[str, ...]],
                 packages: tuple[str, ...]) -> None:
        self._names = names
        self._packages = packages

    def find_spec(self, name: str, path: abc.Sequence[str] | None = None,
                  target: types.ModuleType | None = None
                  ) -> importlib.machinery.ModuleSpec | None:
        parent = sys.modules.get(name.rpartition('.')[0])
        if parent is not None and _is_deferred(parent):
            # A submodule expects its package to be loaded; reading any
            # attribute loads it.
            getattr(parent, '__loaded__', None)
        listed = name in self._names
        if not listed and not name.startswith(self._packages):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None and (
                listed or spec.submodule_search_locations is None):
            spec.loader = typing.cast('importlib.abc.Loader', _Loader(
                spec.loader, self._names.get(name, ())))
        return spec


class _Loader:
    """Runs another loader on the first access to a missing attribute.

    :param loader: loader of the module
    :param names: its attributes that are `Name` until it is loaded
    """

    def __init__(self, loader: importlib.abc.Loader,
                 names: tuple[str, ...]) -> None:
        self._loader = loader
        self._names = names
        self._lock = threading.RLock()
        self._started = False

    def __getattr__(self, name: str) -> typing.Any:
        # Optional methods of loaders, such as get_source.
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec
                      ) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)['__getattr__'] = functools.partial(self._getattr, module)

    def _getattr(self, module: types.ModuleType, name: str) -> typing.Any:
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

    def _load(self, module: types.ModuleType) -> None:
        self._started = True
        assert module.__spec__ is not None, 'it was imported'
        module.__spec__.loader = self._loader
        module.__spec__.loader_state = self._lock
        unloaded, kind = dict(vars(module)), module.__class__
        module.__class__ = _Loading
        try:
            self._loader.exec_module(module)
        except BaseException:
            # Retry on the next access.
            for name in vars(module).keys() - unloaded.keys():
                del vars(module)[name]
            vars(module).update(unloaded)
            self._started = False
            raise
        finally:
            if module.__class__ is _Loading:
                # mypy has narrowed the type of the module.
                module.__class__ = kind     # type: ignore[assignment]
        if _is_deferred(module):
            del vars(module)['__getattr__']


class _Loading(types.ModuleType):
    """A module while a thread loads it; other threads wait for its attributes.

    Otherwise they could call a function whose globals do not exist yet.
    """

    def __getattribute__(self, name: str) -> typing.Any:
        get = types.ModuleType.__getattribute__
        # The import system reads the others while it holds locks of its own.
        if not name.startswith('__'):
            with get(self, '__spec__').loader_state:
                pass
        return get(self, name)


def _is_deferred(module: types.ModuleType) -> bool:
    """Tell whether a module is not loaded, or not completely."""
    hook = vars(module).get('__getattr__')
    return isinstance(hook, functools.partial) and isinstance(
        getattr(hook.func, '__self__', None), _Loader)
