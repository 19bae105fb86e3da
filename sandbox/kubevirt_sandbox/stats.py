# SPDX-License-Identifier: Apache-2.0
"""How often the API was called, by verb and resource."""
import collections


class Stats:
    """Counts of API calls since the last reset."""

    def __init__(self):
        self._calls = collections.Counter()

    def count(self, verb, resource):
        """Note a call.

        :param verb: Kubernetes' verb, e.g. ``list``.
        :param resource: e.g. ``virtualmachines.kubevirt.io/status``; ``''``
            for discovery.
        """
        self._calls[verb, resource or 'discovery'] += 1

    def reset(self):
        """Forget all calls."""
        self._calls.clear()

    def report(self):
        """``{total, verbs: {verb: count}, calls: {verb: {resource:
        count}}}``."""
        calls, verbs = {}, collections.Counter()
        for (verb, resource), count in sorted(self._calls.items()):
            calls.setdefault(verb, {})[resource] = count
            verbs[verb] += count
        return {'total': verbs.total(), 'verbs': dict(verbs), 'calls': calls}
