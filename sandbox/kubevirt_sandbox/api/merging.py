# SPDX-License-Identifier: Apache-2.0
"""Comparing, merging and pruning of values by their shape.

The operations behind field ownership, as
``structured-merge-diff/v6/typed`` defines them.
"""
MISSING = object()

_CONTAINERS = (dict, list)


class Difference:
    """The difference of two values: three sets of paths."""

    def __init__(self):
        self.added = set()
        self.modified = set()
        self.removed = set()


def compare(shape, old, new):
    """Return the :class:`Difference` of two objects."""
    found = Difference()
    _compare(shape, old, new, (), found)
    return found


def _compare(shape, old, new, path, found):
    if old is new or (old == new and type(old) is type(new)):
        return
    old, new = _emptied(shape, old, new), _emptied(shape, new, old)
    present = new if old is MISSING else old
    leaf = True
    if old is MISSING or new is MISSING or type(old) is type(new):
        if isinstance(present, dict) and not shape.atomic:
            leaf = not old if new is MISSING else (
                not new if old is MISSING else not old and not new)
            if not leaf:
                _compare_fields(shape, old, new, path, found)
        elif isinstance(present, list) and shape.list_type != 'atomic':
            leaf = (old is MISSING or not old) and (
                new is MISSING or not new)
            if not leaf:
                leaf = not _compare_entries(shape, old, new, path, found)
    if old is MISSING:
        found.added.add(path)
    elif new is MISSING:
        found.removed.add(path)
    elif leaf:
        found.modified.add(path)


def _granular(shape, value):
    """Tell whether the parts of a value are merged one by one."""
    return (isinstance(value, dict) and not shape.atomic) or (
        isinstance(value, list) and shape.list_type != 'atomic')


def _emptied(shape, value, other):
    """Treat null as an empty value beside a value with parts."""
    return type(other)() if value is None and _granular(
        shape, other) else value


def _compare_fields(shape, old, new, path, found):
    old = {} if old is MISSING else old
    new = {} if new is MISSING else new
    for name, value in new.items():
        here = (*path, 'f:' + name)
        before = old.get(name, MISSING)
        if before is MISSING and type(value) not in _CONTAINERS:
            found.added.add(here)
        elif before is not value:
            _compare(shape.field(name), before, value, here, found)
    for name in old.keys() - new.keys():
        _compare(shape.field(name), old[name], MISSING,
                 (*path, 'f:' + name), found)


def _entries(shape, values):
    """Return ``{path element: entry}``. An element that occurs several times
    has the list of its entries. Return None if entries cannot be identified.
    """
    found = {}
    for value in values:
        try:
            element = shape.entry(value)
        except ValueError:
            return None
        found.setdefault(element, []).append(value)
    return found


def _compare_entries(shape, old, new, path, found):
    olds = _entries(shape, [] if old is MISSING else old)
    news = _entries(shape, [] if new is MISSING else new)
    if olds is None or news is None:
        return False
    for element in olds.keys() | news.keys():
        before = olds.get(element, [])
        after = news.get(element, [])
        here = (*path, element)
        if len(before) <= 1 and len(after) <= 1:
            _compare(shape.items, before[0] if before else MISSING,
                     after[0] if after else MISSING, here, found)
        elif len(before) > 1 and len(after) > 1:
            if before != after:
                found.modified.add(here)
        elif len(before) > 1:
            if after:
                _compare(shape.items, MISSING, after[0], here, found)
            found.removed.add(here)
        else:
            if before:
                _compare(shape.items, before[0], MISSING, here, found)
            found.added.add(here)
    return True


def paths(shape, value):
    """Return the set of paths that a value sets."""
    found = set()
    _paths(shape, value, (), found)
    return found


def _paths(shape, value, path, found):
    if isinstance(value, dict):
        if shape.atomic:
            found.add(path)
            return
        for name, below in value.items():
            here = (*path, 'f:' + name)
            _paths(shape.field(name), below, here, found)
            if below is None or below == {} or not shape.named(name):
                found.add(here)
    elif isinstance(value, list):
        entries = None if shape.list_type == 'atomic' else _entries(
            shape, value)
        if entries is None:
            found.add(path)
            return
        for element, values in entries.items():
            here = (*path, element)
            if len(values) == 1:
                _paths(shape.items, values[0], here, found)
            found.add(here)
    else:
        found.add(path)


def members(shape, found):
    """Add the named fields on the way to each path to a set of paths."""
    result = set(found)
    known = {(): shape}
    for path in found:
        here = shape
        for at, element in enumerate(path[:-1]):
            prefix = path[:at + 1]
            if element.startswith('f:') and here.named(element[2:]):
                result.add(prefix)
            below = known.get(prefix)
            if below is None:
                below = known[prefix] = here.step(element)
            here = below
    return result


def without(shape, value, unwanted):
    """Return a value without the fields and entries at some paths."""
    tree = {}
    for path in unwanted:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node[''] = True
    result = _without(shape, value, tree)
    return {} if result is None else result


def _without(shape, value, tree):
    """Return the remaining value; None if nothing is left."""
    if isinstance(value, dict):
        if shape.atomic:
            return None
        kept = {}
        for name, below in value.items():
            node = tree.get('f:' + name)
            if node is not None:
                if '' in node:
                    continue
                # What is empty afterwards becomes null, since a manager may
                # still own it. Schemas remove nulls that are not allowed.
                below = _without(shape.field(name), below, node)
            kept[name] = below
        return kept or None
    if isinstance(value, list):
        if shape.list_type == 'atomic':
            return None
        kept = []
        for item in value:
            try:
                node = tree.get(shape.entry(item))
            except ValueError:
                node = None
            if node is not None:
                if '' in node:
                    continue
                item = _without(shape.items, item, node)
            kept.append(item)
        return kept or None
    return value


def merge(shape, old, new):
    """Merge ``new`` into a copy of ``old``.

    :raises ValueError: when entries of a list in ``new`` cannot be told
        apart.
    """
    if old is MISSING:
        _check(shape, new)
        return new
    if new is MISSING or (new is None and old and _granular(shape, old)):
        return old
    if isinstance(old, dict) and isinstance(new, dict) and not shape.atomic:
        if not new:
            return old
        result = dict(old)
        for name, below in new.items():
            result[name] = merge(shape.field(name), old.get(name, MISSING),
                                 below)
        return result
    if isinstance(new, list) and shape.list_type != 'atomic':
        return _merge_lists(shape, old if isinstance(old, list) else [], new)
    return new


def _check(shape, value):
    """Refuse list entries with equal keys, at any depth."""
    if isinstance(value, dict):
        if not shape.atomic:
            for name, below in value.items():
                _check(shape.field(name), below)
    elif isinstance(value, list) and shape.list_type != 'atomic':
        _merge_lists(shape, [], value)


def _merge_lists(shape, old, new):
    """Merge lists; entries of ``new`` keep its order."""
    news = {}
    for item in new:
        element = shape.entry(item)
        if element in news:
            raise ValueError(f'duplicate entries for key [{element[2:]}]')
        news[element] = item
    if not old:
        for item in new:
            _check(shape.items, item)
        return new
    olds, old_order = {}, []
    for item in old:
        element = shape.entry(item)
        olds[element] = MISSING if element in olds else item
        old_order.append((element, item))
    order = list(news)
    shared = [e for e in order if e in olds]
    result, merged = [], set()
    left = right = 0

    def take(element):
        merged.add(element)
        result.append(merge(shape.items, olds.get(element, MISSING),
                            news[element]))
        if shared and shared[0] == element:
            shared.pop(0)

    while left < len(old_order) or right < len(order):
        if left < len(old_order):
            element, item = old_order[left]
            if right < len(order):
                if element == order[right]:
                    take(element)
                    left += 1
                    right += 1
                    continue
                if element in news and shared and shared[0] != element:
                    left += 1
                    continue
            if element not in news:
                result.append(item)
                left += 1
                continue
            if element in merged:
                left += 1
        if right < len(order):
            if order[right] not in merged:
                take(order[right])
            right += 1
    return result
