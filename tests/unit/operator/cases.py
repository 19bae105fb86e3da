# SPDX-License-Identifier: Apache-2.0
"""Cases of one BMC: what a cluster has, for the functions of its facts.

A case is a dict. `judged` makes facts of it:

- account, deployment, service, route: they become the BMC's own
- vm, placed and other fields of `facts.Facts`: as they are
- secret: the one that the BMC names, or the one made for it; missing_keys and
  unusable_keys are those of its summary
- copied: whether the copy exists
- certificate: whether that for Redfish exists, or its `pki.Pair`
- authorities: value of ca.crt beside it
- foreign: foreign objects with names of the BMC's, as 'Kind name'
- refused: object and message of the API server
- waiting: whether an upgrade waits
"""

import dataclasses

from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import facts
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import pki
from sushy_kubevirt.operator import secret_summary
from sushy_kubevirt.operator import spec
from sushy_kubevirt.operator import verdict
from tests.unit.operator import bodies

DEFAULTS = deployments.Defaults('virtbmc:1', allowed_images=('mine',))

PAIR = pki.issue(pki.make('mine'), ['node.test'])

GOOD = {'vm': bodies.vm(), 'secret': bodies.secret(),
        'account': bodies.account(), 'deployment': bodies.deployment(),
        'service': bodies.service(), 'certificate': True}

ALLOWED = {stored_names.ALLOW_FROM: 'lab'}
FAR = {**GOOD, 'vm': bodies.vm('far', annotations=ALLOWED),
       'secret': bodies.secret('far', annotations=ALLOWED)}

_OBJECTS = {'account': 'ServiceAccount', 'deployment': 'Deployment',
            'service': 'Service', 'route': 'Route'}


def state(base=GOOD, **changes):
    """Return a case that differs from another in some fields."""
    return {**base, **changes}


def judged(body, case):
    """:returns: BMC, facts and verdict of a case"""
    bmc, fields = spec.read(body), dict(case)
    foreign = fields.pop('foreign', ())
    waiting = fields.pop('waiting', False)
    if 'refused' in fields:
        fields['refused'] = facts.Refusal(*fields['refused'])
    live = {}
    for field, kind in _OBJECTS.items():
        obj = fields.pop(field, None)
        if obj is not None:
            name = naming.base(bmc.name)
            live[bmc_resources.ObjectRef(kind, 'lab', name)] = {
                **obj, 'metadata': {**obj.get('metadata', {}),
                                    **naming.metadata(bmc, name)}}
    for subject in foreign:
        kind, name = subject.split()
        if kind != 'Secret':
            live[bmc_resources.ObjectRef(kind, 'lab', name)] = {
                'metadata': {'namespace': 'lab', 'name': name}}
    known = facts.Facts(live, **_secrets(bmc, fields, foreign), **fields)
    bmc = verdict.served(bmc, known)
    verdict_ = verdict.judge(bmc, known, DEFAULTS)
    return bmc, known, (verdict_.while_upgrade_waits() if waiting
                        else verdict_)


def _secrets(bmc, fields, foreign):
    """Take the Secrets of a case."""
    secret = fields.pop('secret', None)
    keys = {name: fields.pop(name) for name in (
        'missing_keys', 'unusable_keys') if name in fields}
    named = secret and dataclasses.replace(
        secret_summary.summarize(secret), **keys)
    secrets = {'source': named if bmc.auth else None}
    if (fields.pop('copied', False) if bmc.auth else named):
        secrets['auth'] = _own(bmc, named or secret, naming.auth(bmc.name))
    certificate = fields.pop('certificate', False)
    authorities = fields.pop('authorities', '')
    if certificate:
        pair = PAIR if certificate is True else certificate
        summary = secret_summary.summarize(bodies.secret(name='cert', **{
            'tls.crt': pair.certificate, 'tls.key': pair.key,
            'ca.crt': authorities}))
        if bmc.redfish.secret:
            secrets['user_tls'] = summary
        else:
            secrets['tls'] = _own(bmc, summary, naming.tls(bmc.name))
    for field, name in (('auth', naming.auth(bmc.name)),
                        ('state', 'vm-bmc-state')):
        if 'Secret ' + name in foreign:
            secrets[field] = secret_summary.summarize(
                bodies.secret(name=name))
    return secrets


def _own(bmc, summary, name):
    return dataclasses.replace(summary, metadata=secret_summary.summarize({
        'metadata': naming.metadata(bmc, name)}).metadata)
