# SPDX-License-Identifier: Apache-2.0
"""All that the operator knows of the cluster, and which BMC minds what.

It is filled by watches and by the answers to writes, and empty when the
operator starts: nothing in it is needed that the cluster does not tell again.
"""

from sushy_kubevirt.operator import api_resources
from sushy_kubevirt.operator import directory
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import observed_state
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import store

_OWNED = {resource.plural: resource for resource in api_resources.OWNED}


class Known:
    """What is known.

    :param api: an `api.Api`

    ``objects`` is a `store.Store` of BMCs and what was made for them,
    ``machines`` and ``secret_summary`` are those of `directory`.
    """

    def __init__(self, api):
        self.objects = store.Store()
        self.machines = directory.Machines()
        self.secrets = directory.Secrets(api)
        self._minds = {}
        self._refs = {}

    def bmc(self, key):
        """A BMC as it was last seen.

        :param key: (namespace, name)
        :returns: dict, or None
        """
        return self.objects.get(api_resources.BMC, *key)

    def put_bmc(self, body):
        """Take what was seen of a BMC.

        :param body: dict
        :returns: whether it was news
        """
        if not self.objects.put(api_resources.BMC, body):
            return False
        bmc = spec.read(body)
        key = bmc.namespace, bmc.name
        refs = tuple(_refs(bmc))
        if self._refs.get(key) != refs:
            self._unmind(key)
            self._refs[key] = refs
            for ref in refs:
                self._minds[ref] = (*self._minds.get(ref, ()), key)
        return True

    def drop_bmc(self, key):
        """Take that a BMC is gone.

        :returns: whether there was one
        """
        self._unmind(key)
        return self.objects.drop(api_resources.BMC, *key)

    def bmcs(self):
        """:returns: list of keys"""
        return self.objects.names(api_resources.BMC)

    def minding(self, resource, namespace, name):
        """The BMCs that mind an object.

        :returns: tuple of keys
        """
        return self._minds.get((resource.plural, namespace, name), ())

    def live(self, bmc):
        """The objects of a BMC that there are.

        :param bmc: a `spec.Bmc`
        :returns: dict of (kind, namespace, name) and object
        """
        found = {}
        for resource, namespace, name in observed_state.objects(bmc):
            obj = self.objects.get(resource, namespace, name)
            if obj is not None:
                found[resource.kind, namespace, name] = obj
        return found

    def _unmind(self, key):
        for ref in self._refs.pop(key, ()):
            left = tuple(one for one in self._minds[ref] if one != key)
            if left:
                self._minds[ref] = left
                continue
            del self._minds[ref]
            if ref[0] == api_resources.SECRET.plural:
                self.secrets.forget(spec.Reference(*ref[1:]))
            elif ref[0] in _OWNED:
                self._forget_stranger(_OWNED[ref[0]], *ref[1:])

    def _forget_stranger(self, resource, *at):
        """Keep no object of somebody else, of whose end nothing tells."""
        obj = self.objects.get(resource, *at)
        if obj is not None and not naming.made_by_us(obj):
            self.objects.drop(resource, *at)


def _refs(bmc):
    for resource, namespace, name in observed_state.objects(bmc):
        yield resource.plural, namespace, name
    yield api_resources.VM.plural, bmc.vm.namespace, bmc.vm.name
    for at in observed_state.names(bmc).all():
        yield api_resources.SECRET.plural, at.namespace, at.name
