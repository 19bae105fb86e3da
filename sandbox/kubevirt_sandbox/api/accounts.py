# SPDX-License-Identifier: Apache-2.0
"""Service accounts: one for each namespace, and their tokens.

Tokens are JSON web tokens (RFC 7519) with the claims of Kubernetes, signed
with a secret of this server (HS256), so only this server can verify them. A
token becomes invalid when it expires or when its account or the object it is
bound to is deleted.

Follows ``pkg/registry/core/serviceaccount/storage/token.go``,
``pkg/serviceaccount/claims.go`` and
``pkg/controller/serviceaccount`` of Kubernetes 1.36.
"""
import base64
import binascii
import datetime
import hashlib
import hmac
import json
import secrets
import time
import uuid

from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import store

ISSUER = 'https://kubernetes.default.svc.cluster.local'
LIFETIME, SHORTEST, LONGEST = 3600, 600, 1 << 32
TOKEN_SECRET = 'kubernetes.io/service-account-token'  # noqa: S105 - a type

_ACCOUNT_OF = 'kubernetes.io/service-account.'
_MANAGER = 'kube-controller-manager'
_LONGEST_TOKEN = 8192
_REMEMBERED = 10000
_HEAD = {'alg': 'HS256', 'typ': 'JWT'}

TOKEN_REQUEST = kinds.Kind(
    'authentication.k8s.io', 'v1', 'TokenRequest', 'tokenrequests',
    'tokenrequest', schema=core_schemas.strict(
        spec=core_schemas.strict(
            audiences=core_schemas.STRINGS,
            expirationSeconds=core_schemas.INTEGER,
            boundObjectRef=core_schemas.strict(
                kind=core_schemas.STRING, apiVersion=core_schemas.STRING,
                name=core_schemas.STRING, uid=core_schemas.STRING)),
        status=core_schemas.thing()))


def _encode(value):
    return base64.urlsafe_b64encode(json.dumps(
        value, separators=(',', ':')).encode()).rstrip(b'=')


def _decode(text):
    return json.loads(base64.urlsafe_b64decode(
        text + b'=' * (-len(text) % 4)))


class Accounts:
    """The service accounts of one server.

    :param server: a :class:`server.Server`.
    :param namespace: the Kind of namespaces.
    :param account: the Kind of service accounts.
    :param secret: the Kind of secrets.
    :param bound: the Kinds of what tokens may be bound to beside secrets.
    """

    def __init__(self, server, namespace, account, secret, *bound):
        self._server = server
        self._store = server.store
        self._namespace = namespace
        self._account = account
        self._secret = secret
        self._bound = {kind.kind: kind for kind in (secret, *bound)}
        self._key = secrets.token_bytes(32)
        #: {hash of a token: its claims}
        self._checked = {}
        server.tokens.others.append(self.user)
        server.register_subresource(
            '', 'v1', account.plural, 'token', self._request, ('POST',),
            kind='TokenRequest')
        self._store.subscribe(account, self._on_account)
        self._store.subscribe(secret, self._on_secret)

    # -- tokens -----------------------------------------------------------

    def issue(self, namespace, name, audiences=(), seconds=LIFETIME,
              bound=None):
        """Issue a token of an account.

        :param audiences: audiences of the token; none: this API.
        :param seconds: lifetime; None: unlimited.
        :param bound: an object that it ends with, or None.
        :returns: (token, time when it ends in seconds or None).
        :raises errors.ApiError: 404 when there is no such account.
        """
        account = self._store.get(self._account, namespace, name)
        now = int(time.time())
        about = {'namespace': namespace, 'serviceaccount': {
            'name': name, 'uid': account['metadata']['uid']}}
        if bound is not None:
            about[bound['kind'].lower()] = {
                'name': bound['metadata']['name'],
                'uid': bound['metadata']['uid']}
        claims = {'aud': list(audiences) or [ISSUER], 'iat': now, 'nbf': now,
                  'iss': ISSUER, 'jti': str(uuid.uuid4()),
                  'kubernetes.io': about,
                  'sub': auth.account_name(namespace, name)}
        if seconds is not None:
            claims['exp'] = now + seconds
        signed = _encode(_HEAD) + b'.' + _encode(claims)
        token = signed + b'.' + self._sign(signed)
        return token.decode(), claims.get('exp')

    def _sign(self, signed):
        return base64.urlsafe_b64encode(hmac.digest(
            self._key, signed, 'sha256')).rstrip(b'=')

    def _claims(self, token):
        """Return the claims of a token that this server signed, or None."""
        raw = token.encode(errors='replace')
        if len(raw) > _LONGEST_TOKEN:
            return None
        key = hashlib.sha256(raw).digest()
        found = self._checked.get(key)
        if found is None:
            signed, _, signature = raw.rpartition(b'.')
            if not hmac.compare_digest(self._sign(signed), signature):
                return None
            try:
                found = _decode(signed.partition(b'.')[2])
            except (ValueError, binascii.Error):
                return None
            if len(self._checked) >= _REMEMBERED:
                self._checked.clear()
            self._checked[key] = found
        return found

    def user(self, token):
        """Return the :class:`auth.User` of an account's token, or None."""
        claims = self._claims(token)
        if claims is None or ISSUER not in claims['aud'] or (
                claims.get('exp', time.time() + 1) <= time.time()):
            return None
        about = claims['kubernetes.io']
        namespace = about['namespace']
        if not self._is_there(self._account, namespace,
                              about['serviceaccount']):
            return None
        extra = [('authentication.kubernetes.io/credential-id',
                  (f'JTI={claims["jti"]}',))]
        for kind in self._bound.values():
            reference = about.get(kind.kind.lower())
            if reference is None:
                continue
            if not self._is_there(
                    kind, namespace if kind.namespaced else '', reference):
                return None
            if kind is not self._secret:
                prefix = f'authentication.kubernetes.io/{kind.kind.lower()}-'
                extra += [(prefix + 'name', (reference['name'],)),
                          (prefix + 'uid', (reference['uid'],))]
        account = about['serviceaccount']
        return auth.account_user(namespace, account['name'], account['uid'],
                                 tuple(extra))

    def _is_there(self, kind, namespace, reference):
        found = self._store.find(kind, namespace, reference['name'])
        return found is not None and (
            found['metadata']['uid'] == reference['uid'])

    async def _request(self, request):
        """Handle ``POST …/serviceaccounts/NAME/token``."""
        body = request.body
        for field, value in (('kind', TOKEN_REQUEST.kind),
                             ('apiVersion', TOKEN_REQUEST.api_version)):
            if body.get(field, value) != value:
                raise errors.bad_request(
                    f'{field} of the object must be {value}')
        json_copy.drop_nulls(body)
        store.decode(TOKEN_REQUEST, body)
        spec = body.get('spec') or {}
        seconds = spec.get('expirationSeconds')
        seconds = LIFETIME if seconds is None else seconds
        why = ('may not specify a duration less than 10 minutes'
               if seconds < SHORTEST else
               'may not specify a duration larger than 2^32 seconds'
               if seconds > LONGEST else '')
        if why:
            raise errors.invalid(TOKEN_REQUEST, '', [errors.Cause(
                'FieldValueInvalid', f'Invalid value: {seconds}: {why}',
                'spec.expirationSeconds')])
        account = self._store.get(self._account, request.namespace,
                                  request.name)
        bound = self._reference(spec.get('boundObjectRef'), account)
        audiences = spec.get('audiences') or [ISSUER]
        token, end = self.issue(request.namespace, request.name, audiences,
                                seconds, bound)
        spec = {'audiences': audiences, 'expirationSeconds': seconds,
                'boundObjectRef': spec.get('boundObjectRef')}
        return 201, {
            'kind': TOKEN_REQUEST.kind,
            'apiVersion': TOKEN_REQUEST.api_version,
            'metadata': {
                'name': request.name, 'namespace': request.namespace,
                'creationTimestamp': _written(time.time())},
            'spec': spec,
            'status': {'token': token, 'expirationTimestamp': _written(end)}}

    def _reference(self, reference, account):
        """Find the object that a token shall be bound to, or None."""
        if not reference:
            return None
        kind = self._bound.get(reference.get('kind'))
        if kind is None or reference.get('apiVersion', 'v1') != 'v1':
            raise errors.bad_request(
                f'cannot bind token for serviceaccount '
                f'"{account["metadata"]["name"]}" to type '
                f'{reference.get("apiVersion", "v1")}, Kind='
                f'{reference.get("kind", "")}')
        found = self._store.get(
            kind, account['metadata']['namespace'] if kind.namespaced else '',
            reference.get('name', ''))
        uid = found['metadata']['uid']
        if reference.get('uid') not in (None, '', uid):
            raise errors.conflict(
                kind, reference['name'], 'the UID in the bound object '
                f'reference ({reference["uid"]}) does not match the UID in '
                'record. The object might have been deleted and then '
                'recreated')
        if kind.kind == 'Pod':
            runs = found.get('spec', {}).get('serviceAccountName', 'default')
            if runs != account['metadata']['name']:
                raise errors.bad_request(
                    'cannot bind token for serviceaccount '
                    f'"{account["metadata"]["name"]}" to pod running with '
                    'different serviceaccount name.')
        return found

    # -- objects ----------------------------------------------------------

    def _on_account(self, type_, obj, old):
        if type_ != 'DELETED':
            return
        meta = obj['metadata']
        if meta['name'] == 'default':
            self._server.soon(self._restore, meta['namespace'])
        self._server.soon(self._forget, meta['namespace'], meta['name'],
                          meta['uid'])

    def _restore(self, namespace):
        """Make the default account again, where it was deleted."""
        found = self._store.find(self._namespace, '', namespace)
        if found and 'deletionTimestamp' not in found['metadata'] and not (
                self._store.find(self._account, namespace, 'default')):
            self._store.create(self._account, {'metadata': {
                'name': 'default', 'namespace': namespace}},
                manager=_MANAGER)

    def _forget(self, namespace, name, uid):
        """Delete the secrets with tokens of an account that is gone."""
        for record in self._store.collection(self._secret).current(namespace):
            notes = record.obj['metadata'].get('annotations', {})
            if record.obj.get('type') == TOKEN_SECRET and (
                    notes.get(_ACCOUNT_OF + 'uid') == uid):
                self._store.delete(self._secret, *record.key)

    def _on_secret(self, type_, obj, old):
        if type_ != 'DELETED' and obj.get('type') == TOKEN_SECRET and (
                'token' not in obj.get('data', {})):
            self._server.soon(self._fill, obj['metadata']['namespace'],
                              obj['metadata']['name'])

    def _fill(self, namespace, name):
        """Put a token that never ends into a secret made for one."""
        secret = self._store.find(self._secret, namespace, name)
        if secret is None or 'token' in secret.get('data', {}):
            return
        notes = secret['metadata'].get('annotations', {})
        account = self._store.find(self._account, namespace,
                                   notes.get(_ACCOUNT_OF + 'name', ''))
        if account is None:
            return
        uid = account['metadata']['uid']
        if notes.get(_ACCOUNT_OF + 'uid', uid) != uid:
            return
        token, _ = self.issue(namespace, account['metadata']['name'],
                              seconds=None, bound=secret)

        def change(new):
            new['metadata']['annotations'][_ACCOUNT_OF + 'uid'] = uid
            new.setdefault('data', {}).update({
                key: base64.b64encode(value).decode() for key, value in (
                    ('token', token.encode()),
                    ('namespace', namespace.encode()),
                    ('ca.crt', self._server.ca or b''))})
        self._store.change(self._secret, namespace, name, change,
                           manager=_MANAGER)


def _written(seconds):
    return datetime.datetime.fromtimestamp(
        seconds, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
