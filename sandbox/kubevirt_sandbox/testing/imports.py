# SPDX-License-Identifier: Apache-2.0
"""Imports between the packages of a project, for tests of its layers.

The sources are parsed, not imported, so that imports within functions count
as well.
"""

import ast
import functools
import sys


def within(name, packages):
    """Tell whether a full name is one of some packages or is in one."""
    return any(name == one or name.startswith(one + '.') for one in packages)


def modules(root, *packages):
    """List the imports of all modules of some packages.

    :param root: `pathlib.Path` of the folder that contains the packages
    :param packages: full names of packages
    :returns: dict of full module name to a tuple of the full names that it
        imports from outside of the standard library
    """
    return {module: _imports(path) for package in packages
            for module, path in _sources(root, package)}


def _sources(root, package):
    for path in sorted((root / package.replace('.', '/')).rglob('*.py')):
        parts = path.relative_to(root).with_suffix('').parts
        if parts[-1] == '__init__':
            parts = parts[:-1]
        yield '.'.join(parts), path


@functools.cache
def _imports(path):
    return tuple(
        name for node in _statements(ast.parse(path.read_bytes()))
        for name in _imported(node)
        if name.partition('.')[0] not in sys.stdlib_module_names)


def _imported(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert not node.level, 'relative imports are not our style'
        return [f'{node.module}.{alias.name}' for alias in node.names]
    return []


def _statements(node):
    """Yield all statements below a node, but no expressions."""
    for field in 'body', 'handlers', 'cases', 'orelse', 'finalbody':
        for statement in getattr(node, field, ()):
            yield statement
            yield from _statements(statement)


def graph(imported):
    """Keep the imports between the modules, as `graphlib` expects them.

    :param imported: result of `modules`
    :returns: dict of module to the set of modules that it imports
    """
    # An imported name is a module, or a name in one.
    return {module: {name if name in imported else name.rpartition('.')[0]
                     for name in names} & set(imported) - {module}
            for module, names in imported.items()}


def forbidden(imported, layers):
    """Find imports that the layers do not allow.

    A module belongs to the layer with the longest name that contains it;
    modules outside of all layers are ignored.

    :param imported: result of `modules`
    :param layers: dict of layer (a package) to the packages that it may
        import besides itself and the standard library
    :returns: list of "<module> imports <name>", and the set of the layers
        that have modules
    """
    wrong, seen = [], set()
    for module, names in imported.items():
        containing = [layer for layer in layers if within(module, {layer})]
        if not containing:
            continue
        layer = max(containing, key=len)
        seen.add(layer)
        wrong += [f'{module} imports {name}' for name in names
                  if not within(name, {layer} | layers[layer])]
    return wrong, seen
