# SPDX-License-Identifier: Apache-2.0
"""CDI's cluster roles and their bindings.

Source: pkg/operator/resources/cluster/rbac.go (CDI 1.65).
"""
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import bootstrap_roles as b
from kubevirt_sandbox.api import roles

_LABELS = {'cdi.kubevirt.io': '', 'operator.cdi.kubevirt.io': ''}
_GROUP = 'cdi.kubevirt.io'
_OWNED = ('datavolumes', 'dataimportcrons', 'datasources',
          'volumeimportsources', 'volumeuploadsources', 'volumeclonesources')
_POPULATORS = ('forklift.cdi.kubevirt.io', 'ovirtvolumepopulators',
               'openstackvolumepopulators')
_SOURCE = b.rule(['create'], _GROUP, 'datavolumes/source')
_WORKED = (
    b.rule(['*'], _GROUP, *_OWNED), _SOURCE,
    b.rule(['*'], 'upload.cdi.kubevirt.io', 'uploadtokenrequests'),
    b.rule(['*'], *_POPULATORS))
_READER = 'cdi.kubevirt.io:config-reader'


def objects():
    """(kind, object) of each."""
    for name, rules in (('admin', _WORKED), ('edit', _WORKED), ('view', (
            b.rule(b.READ, _GROUP, 'cdiconfigs', *_OWNED, 'objecttransfers',
                   'storageprofiles'), b.rule(b.READ, *_POPULATORS)))):
        yield roles.CLUSTER_ROLE, b.part(f'{_GROUP}:{name}', rules, name,
                                         labels=_LABELS)
    yield roles.CLUSTER_ROLE, b.role(f'{_GROUP}:clone-sourcer', (_SOURCE,),
                                     _LABELS)
    yield roles.CLUSTER_ROLE, b.role(_READER, (
        b.rule(b.READ, _GROUP, 'cdiconfigs', 'storageprofiles'),), _LABELS)
    # CDI itself writes the second so, without an s.
    yield roles.CLUSTER_ROLE_BINDING, b.binding(
        _READER, auth.AUTHENTICATED, 'system:serviceaccount', labels=_LABELS)
