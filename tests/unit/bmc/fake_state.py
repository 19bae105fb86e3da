# SPDX-License-Identifier: Apache-2.0
"""A state Secret without Kubernetes."""


class State:
    """Fake state Secret."""

    def __init__(self):
        self.sections = {}

    def subscribe(self, callback):
        self.changed = callback

    def catch_up(self):
        pass

    def read(self, section, fresh=False):
        return self.cached(section)

    def cached(self, section):
        return self.sections.get(section, {})

    def update(self, section, edit):
        edit(self.sections.setdefault(section, {}))
