# SPDX-License-Identifier: Apache-2.0
"""Sets of field paths, and their wire form ``fieldsV1``.

A path is a tuple of elements as ``fieldsV1`` writes them: ``f:name`` a
field, ``k:{"name":"x"}`` an entry of a list by its keys, ``v:"x"`` a
member of a set, ``i:0`` an index. The wire form is a tree of them, where
an empty dict, or one with ``.``, is a member of the set (follows
``structured-merge-diff/v6/fieldpath``).
"""
import json


def encode(paths):
    """Encode a collection of paths as FieldsV1."""
    tree = {}
    for path in paths:
        add(tree, path)
    return tree


def decode(tree):
    """Decode FieldsV1 into a set of paths.

    :raises ValueError: when it is none.
    """
    found = set()

    def walk(node, path):
        if not isinstance(node, dict):
            raise ValueError('fields are objects')
        for element, below in node.items():
            if element == '.':
                continue
            if element[:2] not in ('f:', 'k:', 'v:', 'i:'):
                raise ValueError(f'{element!r} is no path element')
            if element[0] == 'k' and not isinstance(
                    json.loads(element[2:]), dict):
                raise ValueError(f'{element!r} has no keys')
            here = (*path, element)
            walk(below, here)
            if not below or '.' in below:
                found.add(here)
    walk(tree, ())
    return found


def add(tree, path):
    """Add a path to a wire form, in place."""
    for at, element in enumerate(path):
        below = tree.get(element)
        if below is None:
            below = tree[element] = {}
            tree = below
            for element in path[at + 1:]:
                below = tree[element] = {}
                tree = below
            return
        if not below and at + 1 < len(path):
            # A member gets children: it must go on being a member.
            below['.'] = {}
        tree = below
    if tree and '.' not in tree:
        tree['.'] = {}


def remove(tree, path):
    """Remove a path from a wire form, in place.

    :returns: whether it was there.
    """
    below = tree.get(path[0])
    if below is None:
        return False
    if len(path) == 1:
        if not below or below.keys() == {'.'}:
            del tree[path[0]]
            return True
        return below.pop('.', None) is not None
    if not remove(below, path[1:]):
        return False
    if not below:
        # Without children it would read as a member, which it was not.
        del tree[path[0]]
    elif below.keys() == {'.'}:
        del below['.']
    return True


def has(tree, path):
    """Tell whether FieldsV1 contains a path."""
    for element in path:
        tree = tree.get(element)
        if tree is None:
            return False
    return not tree or '.' in tree


def text(path):
    """Format a path for messages, e.g. ``.spec.disks[name="root"].bus``."""
    said = []
    for element in path:
        kind, value = element[:2], element[2:]
        if kind == 'f:':
            said.append('.' + value)
        elif kind == 'k:':
            keys = json.loads(value)
            said.append('[' + ','.join(
                f'{k}={json.dumps(v)}' for k, v in sorted(keys.items()))
                + ']')
        elif kind == 'v:':
            said.append(f'[={value}]')
        else:
            said.append(f'[{value}]')
    return ''.join(said)
