# SPDX-License-Identifier: Apache-2.0
"""Whether a BMC may use a VM or a Secret of another namespace.

Whoever may make a BMC must not gain a VM or a Secret elsewhere by it: the
operator could reach both. So these name, in an annotation, the namespaces
that they may be used from. Who may write the annotation may read the Secret,
or change the VM, anyway. No pattern is understood: a namespace that nobody
thought of is not meant.
"""

from sushy_kubevirt.operator import naming

#: Annotation of a VM or a Secret: names of namespaces with commas between.
ANNOTATION = naming.GROUP + '/allow-from'


def permitted(namespace, obj):
    """Whether BMCs of a namespace may use an object.

    :param namespace: of the BMC
    :param obj: dict, a VM or a Secret; its metadata are enough
    """
    metadata = obj['metadata']
    if metadata['namespace'] == namespace:
        return True
    value = (metadata.get('annotations') or {}).get(ANNOTATION)
    return isinstance(value, str) and namespace in {
        part.strip() for part in value.split(',')}
