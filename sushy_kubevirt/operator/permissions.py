# SPDX-License-Identifier: Apache-2.0
"""Images, and objects of other namespaces, that a BMC may refer to.

The operator can access all VMs and Secrets, so creating a BMC must not give
its author access to one that the author could not access otherwise.

- An image runs with the Secrets that the BMC refers to and with the rights of
  its account, so only images in --allowed-images are allowed.
- A VM or a Secret lists in an annotation the other namespaces that may use it.
  A user who may write that annotation may also read the Secret, or change the
  VM. Patterns are not supported: they would match namespaces that are created
  later.
"""

from __future__ import annotations

from collections import abc

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names

#: Pattern that allows all images.
ANY = '*'


def repository(image: str) -> str:
    """Strip tag and digest from the name of an image.

    :param image: such as ``registry.test:5000/virtbmc:1@sha256:…``
    """
    name = image.partition('@')[0]
    folder, slash, last = name.rpartition('/')
    return folder + slash + last.partition(':')[0]


def image_allowed(image: str, patterns: abc.Iterable[str]) -> bool:
    """Tell whether a BMC may use an image.

    :param image: its name
    :param patterns: repositories, such as ``registry.test/virtbmc``; all
        below one, ``registry.test/lab/*``; or `ANY`
    """
    name = repository(image)
    return any(pattern == ANY or name == pattern
               or pattern.endswith('/*') and name.startswith(pattern[:-1])
               for pattern in patterns)


def reference_permitted(namespace: str, obj: objects.AnyObject) -> bool:
    """Tell whether BMCs of a namespace may use an object.

    :param namespace: of the BMC
    :param obj: a VM or a Secret; its metadata is enough
    """
    metadata = obj['metadata']
    if metadata['namespace'] == namespace:
        return True
    value = (metadata.get('annotations') or {}).get(stored_names.ALLOW_FROM)
    return isinstance(value, str) and namespace in {
        part.strip() for part in value.split(',')}
