# SPDX-License-Identifier: Apache-2.0
"""CDI's cluster roles and their bindings.

Source: pkg/operator/resources/cluster/rbac.go (CDI 1.65).
"""
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import bootstrap_roles
from kubevirt_sandbox.api import roles

_rule = bootstrap_roles.rule
_READ = bootstrap_roles.READ

_LABELS = {'cdi.kubevirt.io': '', 'operator.cdi.kubevirt.io': ''}
_GROUP = 'cdi.kubevirt.io'
_OWNED = ('datavolumes', 'dataimportcrons', 'datasources',
          'volumeimportsources', 'volumeuploadsources', 'volumeclonesources')
_POPULATORS = ('forklift.cdi.kubevirt.io', 'ovirtvolumepopulators',
               'openstackvolumepopulators')
_SOURCE = _rule(['create'], _GROUP, 'datavolumes/source')
_WORKED = (
    _rule(['*'], _GROUP, *_OWNED), _SOURCE,
    _rule(['*'], 'upload.cdi.kubevirt.io', 'uploadtokenrequests'),
    _rule(['*'], *_POPULATORS))
_READER = 'cdi.kubevirt.io:config-reader'


def objects():
    """Yield (kind, object) of each role and binding."""
    for name, rules in (('admin', _WORKED), ('edit', _WORKED), ('view', (
            _rule(_READ, _GROUP, 'cdiconfigs', *_OWNED, 'objecttransfers',
                  'storageprofiles'), _rule(_READ, *_POPULATORS)))):
        yield roles.CLUSTER_ROLE, bootstrap_roles.part(
            f'{_GROUP}:{name}', rules, name, labels=_LABELS)
    yield roles.CLUSTER_ROLE, bootstrap_roles.role(
        f'{_GROUP}:clone-sourcer', (_SOURCE,), _LABELS)
    yield roles.CLUSTER_ROLE, bootstrap_roles.role(_READER, (
        _rule(_READ, _GROUP, 'cdiconfigs', 'storageprofiles'),), _LABELS)
    # CDI itself writes the second so, without an s.
    yield roles.CLUSTER_ROLE_BINDING, bootstrap_roles.binding(
        _READER, auth.AUTHENTICATED, 'system:serviceaccount', labels=_LABELS)
