# SPDX-License-Identifier: Apache-2.0
"""OpenShift's kind Route: hosts, access rights and validation.

Sources (2026): openshift/openshift-apiserver,
pkg/route/apiserver/registry/route/strategy.go and
pkg/route/printers/internalversion/printer.go; openshift/library-go,
pkg/route/hostassignment and pkg/route/validation; openshift/api, route/v1.
"""

import re

from kubevirt_sandbox.api import attributes
from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import kinds

#: Domain of the hosts that routes get.
DOMAIN = 'apps.sandbox.test'

#: Annotation of a route whose host was not asked for.
GENERATED = 'openshift.io/host.generated'

_CERTIFICATES = ('caCertificate', 'certificate', 'destinationCACertificate',
                 'key')
_POLICIES = 'None', 'Allow', 'Redirect'
_LABEL = re.compile(r'[a-z0-9]([-a-z0-9]*[a-z0-9])?')


def admitted(ingress):
    """Return the condition ``Admitted`` of an entry of the status, or {}."""
    return next((one for one in ingress.get('conditions') or ()
                 if one.get('type') == 'Admitted'), {})


def _host(obj):
    """Return the column that says where a route is served."""
    found = (obj.get('status') or {}).get('ingress')
    if not found:
        return obj['spec'].get('host', '')
    good = [one for one in found if admitted(one).get('status') == 'True']
    bad = [admitted(one) for one in found
           if admitted(one).get('status') == 'False']
    if not good:
        return bad[-1].get('reason', '') if bad else 'Pending'
    host = good[0].get('host', '')
    if bad:
        return f'{host} ... {len(bad)} rejected'
    return f'{host} ... {len(good) - 1} more' if good[1:] else host


def _termination(obj):
    tls = obj['spec'].get('tls') or {}
    return '/'.join(filter(None, (
        tls.get('termination'), tls.get('insecureEdgeTerminationPolicy'))))


def _default(new):
    spec = new.setdefault('spec', {})
    spec.setdefault('wildcardPolicy', 'None')
    for one in [spec.setdefault('to', {}),
                *(spec.get('alternateBackends') or ())]:
        one.setdefault('kind', 'Service')
        one.setdefault('weight', 100)


def _causes(route):
    """List what is wrong with a route."""
    spec, found = route['spec'], []
    tls = spec.get('tls')

    def wrong(field, value, why):
        found.append(errors.Cause(
            'FieldValueInvalid', f'Invalid value: "{value}": {why}', field))

    for label in spec['host'].split('.') if spec.get('host') else ():
        if len(label) > 63:
            wrong('spec.host', spec['host'],
                  'must be no more than 63 characters')
        elif not _LABEL.fullmatch(label):
            wrong('spec.host', spec['host'], 'a lowercase RFC 1123 label '
                  'must consist of lower case alphanumeric characters or '
                  "'-'")
    if not spec['to'].get('name'):
        found.append(errors.Cause('FieldValueRequired', 'Required value',
                                  'spec.to.name'))
    if spec['to']['kind'] != 'Service':
        wrong('spec.to.kind', spec['to']['kind'], 'must reference a Service')
    if tls is None:
        return found
    termination = tls.get('termination')
    policy = tls.get('insecureEdgeTerminationPolicy')
    if termination not in ('edge', 'passthrough', 'reencrypt'):
        found.append(errors.Cause(
            'FieldValueNotSupported', f'Unsupported value: "{termination}": '
            'supported values: "edge", "passthrough", "reencrypt"',
            'spec.tls.termination'))
    if termination == 'passthrough':
        for name in _CERTIFICATES:
            if tls.get(name):
                wrong(f'spec.tls.{name}', 'redacted', 'passthrough '
                      'termination does not support certificates')
        if spec.get('path'):
            wrong('spec.path', spec['path'],
                  'passthrough termination does not support paths')
    if termination == 'edge' and tls.get('destinationCACertificate'):
        wrong('spec.tls.destinationCACertificate', 'redacted', 'edge '
              'termination does not support destination certificates')
    if policy and policy not in (_POLICIES if termination != 'passthrough'
                                 else ('None', 'Redirect')):
        wrong('spec.tls.insecureEdgeTerminationPolicy', policy,
              'invalid value for InsecureEdgeTerminationPolicy option')
    return found


class Routes:
    """Assigns hosts to routes and checks them.

    :param server: the :class:`kubevirt_sandbox.api.server.Server`.

    ``kind`` is the :class:`kinds.Kind`.
    """

    def __init__(self, server):
        self._access = server.access
        text, strict = core_schemas.STRING, core_schemas.strict
        backend = strict(kind=text, name=text, weight=core_schemas.INTEGER)
        self.kind = kinds.Kind(
            'route.openshift.io', 'v1', 'Route', 'routes', 'route',
            categories=('all',), status=True, generation=False,
            default=_default, mutate=self._prepare, validate=self._validate,
            columns=(
                kinds.Column('Host/Port', value=_host),
                kinds.Column('Path', jsonPath='.spec.path'),
                kinds.Column('Services', jsonPath='.spec.to.name'),
                kinds.Column('Port', value=lambda obj: str(
                    (obj['spec'].get('port') or {}).get(
                        'targetPort', '<all>'))),
                kinds.Column('Termination', value=_termination),
                kinds.Column('Wildcard', jsonPath='.spec.wildcardPolicy')),
            schema=core_schemas.about(strict(
                spec=strict(
                    host=text, subdomain=text, path=text, to=backend,
                    alternateBackends=core_schemas.keyed(
                        backend, 'name', 'kind'),
                    port=strict(targetPort={
                        'x-kubernetes-int-or-string': True}),
                    tls=strict(
                        termination=text, insecureEdgeTerminationPolicy=text,
                        externalCertificate=core_schemas.LOCAL_REFERENCE,
                        **dict.fromkeys(_CERTIFICATES, text)),
                    wildcardPolicy=text,
                    httpHeaders=core_schemas.ANYTHING),
                status=strict(ingress={
                    'type': 'array', 'x-kubernetes-list-type': 'atomic',
                    'items': strict(
                        host=text, routerName=text, wildcardPolicy=text,
                        routerCanonicalHostname=text,
                        conditions=core_schemas.CONDITIONS)})),
                'A route exposes a service at a host of an ingress '
                'controller.'))
        server.register_kind(self.kind)

    def _prepare(self, admission):
        """Assign a host, which cannot be removed afterwards."""
        new, old = admission.new, admission.old
        if new is None or admission.subresource:
            return
        meta, spec = new['metadata'], new['spec']
        if old is not None:
            if not spec.get('host') and old['spec'].get('host'):
                spec['host'] = old['spec']['host']
            self._check_update(admission)
            return
        new.pop('status', None)
        asked = spec.get('host')
        if (asked or _certificates(new)) and not self._may(
                'create', admission):
            self._refuse(new, *(('spec.host', 'the host field of the route')
                                if asked else _TLS))
        if not asked and not spec.get('subdomain'):
            spec['host'] = (f"{meta['name'].replace('.', '-')}-"
                            f"{meta['namespace']}.{DOMAIN}")
            meta.setdefault('annotations', {})[GENERATED] = 'true'

    def _check_update(self, admission):
        new, old = admission.new, admission.old
        host = any(new['spec'].get(name) != old['spec'].get(name)
                   for name in ('host', 'subdomain'))
        after = _certificates(new)
        if host:
            if not self._may('update', admission):
                self._refuse(new, 'spec.host', 'the host field of the route')
        elif after and after != _certificates(old):
            if not any(self._may(verb, admission)
                       for verb in ('update', 'create')):
                self._refuse(new, *_TLS)

    def _may(self, verb, admission):
        user = admission.identity
        return user is None or self._access.decide(
            user, attributes.Attributes(
                verb, self.kind.group, self.kind.plural, 'custom-host',
                admission.new['metadata']['namespace']))[0]

    def _refuse(self, route, field, what):
        raise errors.invalid(self.kind, route['metadata']['name'], [
            errors.Cause('FieldValueForbidden', 'Forbidden: you do not have '
                         f'permission to set {what}', field)])

    def _validate(self, admission):
        new, old = admission.new, admission.old
        if new is None or admission.subresource:
            return
        found = _causes(new)
        policy = new['spec'].get('wildcardPolicy')
        if old is not None and policy != old['spec'].get('wildcardPolicy'):
            found.append(errors.Cause(
                'FieldValueInvalid', f'Invalid value: "{policy}": field is '
                'immutable', 'spec.wildcardPolicy'))
        if found:
            raise errors.invalid(self.kind, new['metadata']['name'], found)


_TLS = 'spec.tls', 'certificate fields on the route'


def _certificates(route):
    tls = route['spec'].get('tls') or {}
    return {name: tls[name] for name in _CERTIFICATES if tls.get(name)}
