# SPDX-License-Identifier: Apache-2.0
"""KubeVirt's cluster roles and their bindings.

Source: pkg/virt-operator/resource/generate/rbac/cluster.go (KubeVirt 1.9).
"""
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import bootstrap_roles
from kubevirt_sandbox.api import roles

_rule = bootstrap_roles.rule
_READ, _ALL = bootstrap_roles.READ, bootstrap_roles.ALL

_LABELS = {'kubevirt.io': ''}
_MANAGER = 'virt-operator'
_GROUP, _VERBS = 'kubevirt.io', 'subresources.kubevirt.io'
_TYPES = 'instancetype.kubevirt.io'

_VMI, _VM = 'virtualmachineinstances/', 'virtualmachines/'
_SEEN = tuple(_VMI + name for name in (
    'guestosinfo', 'filesystemlist', 'userlist', 'sev/fetchcertchain',
    'sev/querylaunchmeasurement', 'objectgraph')) + (_VM + 'objectgraph',)
_USED = tuple(_VMI + name for name in (
    'console', 'vnc', 'portforward', 'usbredir'))
_ACTED = tuple(_VMI + name for name in (
    'pause', 'unpause', 'addvolume', 'removevolume', 'freeze', 'unfreeze',
    'softreboot', 'reset', 'sev/setupsession', 'sev/injectlaunchsecret',
    'evacuate/cancel')) + tuple(_VM + name for name in (
        'start', 'stop', 'restart', 'addvolume', 'removevolume',
        'memorydump', 'removememorydump', 'evacuate/cancel'))
_MACHINES = ('virtualmachines', 'virtualmachineinstances',
             'virtualmachineinstancepresets',
             'virtualmachineinstancereplicasets')
_MIGRATIONS = 'virtualmachineinstancemigrations'
_CLUSTER_TYPES = ('virtualmachineclusterinstancetypes',
                  'virtualmachineclusterpreferences')
_OTHERS = (
    ('snapshot.kubevirt.io', 'virtualmachinesnapshots',
     'virtualmachinesnapshotcontents', 'virtualmachinerestores'),
    ('backup.kubevirt.io', 'virtualmachinebackups',
     'virtualmachinebackuptrackers'),
    ('plugin.kubevirt.io', 'plugins'),
    ('export.kubevirt.io', 'virtualmachineexports'),
    ('clone.kubevirt.io', 'virtualmachineclones'),
    (_TYPES, 'virtualmachineinstancetypes', 'virtualmachinepreferences',
     *_CLUSTER_TYPES),
    ('pool.kubevirt.io', 'virtualmachinepools'))

_INFORMED = (_rule(('get', 'list'), _GROUP, 'kubevirts'),)
_POLICIES = _rule(_READ, 'migrations.kubevirt.io', 'migrationpolicies')
_EXPAND = _rule(['update'], _VERBS, 'expand-vm-spec')


def _worked(verbs, *more):
    """Make the rules of the roles admin and edit."""
    return (
        _rule(['get'], _VERBS, *_USED, *more, *_SEEN, _VM + 'expand-spec',
              _VM + 'portforward'),
        _rule(['update'], _VERBS, *_ACTED), _EXPAND,
        _rule(verbs, _GROUP, *_MACHINES),
        _rule(_READ, _GROUP, _MIGRATIONS),
        *(_rule(verbs, *other) for other in _OTHERS
          if verbs is _ALL or other[0] != 'plugin.kubevirt.io'),
        _POLICIES)


_EDIT = tuple(verb for verb in _ALL if verb != 'deletecollection')


def install(store):
    """Create the roles and bindings in the store."""
    made = [
        bootstrap_roles.role('kubevirt.io:default', (
            *_INFORMED,
            _rule(('get', 'list'), _VERBS, 'version', 'guestfs')), _LABELS),
        bootstrap_roles.part(
            'kubevirt.io:admin', _worked(_ALL, _VMI + 'vnc/screenshot'),
            'admin', labels=_LABELS),
        bootstrap_roles.part(
            'kubevirt.io:edit', (*_worked(_EDIT), *_INFORMED), 'edit',
            labels=_LABELS),
        bootstrap_roles.part('kubevirt.io:view', (
            *_INFORMED, _rule(['get'], _VERBS, _VM + 'expand-spec', *_SEEN),
            _EXPAND, _rule(_READ, _GROUP, *_MACHINES, _MIGRATIONS),
            *(_rule(_READ, *other) for other in _OTHERS), _POLICIES),
            'view', labels=_LABELS),
        bootstrap_roles.role('instancetype.kubevirt.io:view', (
            _rule(_READ, _TYPES, *_CLUSTER_TYPES),), _LABELS),
        bootstrap_roles.role('kubevirt.io:migrate', (
            _rule(['update'], _VERBS, _VM + 'migrate'),
            _rule(_ALL, _GROUP, _MIGRATIONS)), _LABELS)]
    for role in made:
        store.create(roles.CLUSTER_ROLE, role, manager=_MANAGER)
    for name in ('kubevirt.io:default', 'instancetype.kubevirt.io:view'):
        store.create(roles.CLUSTER_ROLE_BINDING, bootstrap_roles.binding(
            name, auth.AUTHENTICATED, labels=_LABELS), manager=_MANAGER)
