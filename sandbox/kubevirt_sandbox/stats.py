# SPDX-License-Identifier: Apache-2.0
"""Counters of API calls by verb and resource."""
import collections


class Stats:
    """Counts of API calls since the last reset."""

    def __init__(self):
        self._calls = collections.Counter()

    def count(self, verb, resource):
        """Count one call.

        :param verb: Kubernetes verb, e.g. ``list``.
        :param resource: e.g. ``virtualmachines.kubevirt.io/status``; ``''``
            for discovery.
        """
        self._calls[verb, resource or 'discovery'] += 1

    def reset(self):
        """Set all counters to zero."""
        self._calls.clear()

    def report(self):
        """Return the counters.

        :returns: ``{total, verbs: {verb: count}, calls: {verb: {resource:
            count}}}``.
        """
        calls, verbs = {}, collections.Counter()
        for (verb, resource), count in sorted(self._calls.items()):
            calls.setdefault(verb, {})[resource] = count
            verbs[verb] += count
        return {'total': verbs.total(), 'verbs': dict(verbs), 'calls': calls}
