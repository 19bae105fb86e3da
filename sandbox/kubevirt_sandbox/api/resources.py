# SPDX-License-Identifier: Apache-2.0
"""API verbs on resources: translates HTTP requests to store operations.

Authentication, authorization and routing are in :mod:`server`.
"""
import base64
import binascii
import dataclasses
import functools
import itertools
import json

from kubevirt_sandbox.api import attributes
from kubevirt_sandbox.api import auth
from kubevirt_sandbox.api import bodies
from kubevirt_sandbox.api import core_schemas
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import history
from kubevirt_sandbox.api import json_copy
from kubevirt_sandbox.api import kinds
from kubevirt_sandbox.api import metadata
from kubevirt_sandbox.api import negotiation
from kubevirt_sandbox.api import patching
from kubevirt_sandbox.api import protobuf
from kubevirt_sandbox.api import query_parameters
from kubevirt_sandbox.api import request_path
from kubevirt_sandbox.api import selectors
from kubevirt_sandbox.api import store
from kubevirt_sandbox.api import views
from kubevirt_sandbox.api import watches
from kubevirt_sandbox.api import web


@dataclasses.dataclass
class Call:
    """One call of the API on a resource.

    :param verb: ``get``, ``list``, ``watch``, ``create``, ``update``,
        ``patch``, ``delete`` or ``deletecollection``.
    """

    server: object
    request: web.Request
    target: request_path.Target
    kind: kinds.Kind
    verb: str
    user: auth.User

    @property
    def store(self):
        """Return the :class:`store.Store` of the server."""
        return self.server.store

    def authorize(self, verb):
        """Check that the user has the right to another verb as well.

        :raises errors.ApiError: 403.
        """
        wanted = attributes.of_target(self.request.method, self.target,
                                      self.query)
        self.server.access.check(self.user, wanted._replace(verb=verb))

    @property
    def query(self):
        """Return the query parameters of the request."""
        return self.request.query

    def manager(self):
        """Return the field manager, from the query or the User-Agent."""
        manager = self.query.get('fieldManager', '')
        if not manager:
            agent = self.request.headers.get('User-Agent', '')
            manager = agent.partition('/')[0]
        if len(manager) > 128:
            raise errors.ApiError(
                422, 'Invalid', 'options.meta.k8s.io "" is invalid: '
                'fieldManager: Too long: may not be more than 128 bytes')
        return manager or 'unknown'

    def dry_run(self, body=None):
        """Tell whether the call is a dry run."""
        wanted = self.query.getall('dryRun', []) or (
            body or {}).get('dryRun') or []
        if any(value != 'All' for value in wanted):
            raise errors.ApiError(
                422, 'Invalid', 'options.meta.k8s.io "" is invalid: dryRun: '
                f'Unsupported value: {json.dumps(wanted)}: supported values: '
                '"All"')
        return bool(wanted)

    @functools.cached_property
    def form(self):
        """Return the negotiated form of the response."""
        return negotiation.accepted(self.request.headers.get('Accept'))

    @functools.cached_property
    def view(self):
        """Return the :class:`views.View` of the response."""
        return views.View(self.kind, self.form,
                          self.query.get('includeObject'))

    def one(self, obj):
        """Return the response with one object, bytes."""
        return self.view.one(obj, self.store.record(self.kind, obj))

    def respond(self, raw, status=200, warnings=()):
        """Return a response in the negotiated media type."""
        return respond(raw, status, warnings, self.form.media)

    def selector(self, name=''):
        """Return the selector of the call.

        :param name: selects only the object of this name.
        """
        fields = self.query.get('fieldSelector', '')
        if name:
            fields = ','.join(
                f for f in (fields, f'metadata.name={name}') if f)
        return selectors.Selector(self.query.get('labelSelector', ''),
                                  fields, self.kind)


def respond(raw, status=200, warnings=(), media=negotiation.JSON):
    """Return a JSON response; JSON is valid YAML as well."""
    response = web.Response(
        body=raw, status=status, content_type=media,
        headers={'Cache-Control': 'no-cache, private'})
    for text in warnings:
        text = text.replace('\\', '\\\\').replace('"', '\\"')
        text = text.replace('\n', ' ').replace('\r', ' ')
        response.headers.add('Warning', f'299 - "{text}"')
    return response


async def get(call):
    """Return one object."""
    obj = call.store.get(call.kind, call.target.namespace, call.target.name)
    if call.query.get('resourceVersion'):
        query_parameters.ListOptions.read(
            {'resourceVersion': call.query['resourceVersion']}, False)
    return call.respond(call.one(obj))


def _read_token(token):
    """Parse a continue token into (version, (namespace, name))."""
    try:
        value = json.loads(base64.urlsafe_b64decode(
            token.encode() + b'=' * (-len(token) % 4)))
        if value['v'] != 'meta.k8s.io/v1':
            raise ValueError
        return int(value['rv']), tuple(
            str(part) for part in value['start'].split('\0', 1))
    except (ValueError, KeyError, TypeError, AttributeError,
            binascii.Error):
        raise errors.bad_request(
            'continue key is not valid: illegal base64 data') from None


def expired(token):
    """Return the 410 error for a continue token that is too old.

    It has a token that continues from the same object at the present version.
    """
    exc = errors.gone(
        'The provided continue parameter is too old to display a consistent '
        'list result. You can start a new list without the continue '
        'parameter, or use the continue token in this response to retrieve '
        'the remainder of the results. Continuing with the provided token '
        'results in an inconsistent list - objects that were created, '
        'modified, or deleted between the time the first chunk was returned '
        'and now may show up in the list.')
    exc.list_meta = {'continue': _token(-1, _read_token(token)[1])}
    return exc


def _token(version, key):
    value = {'v': 'meta.k8s.io/v1', 'rv': version, 'start': '\0'.join(key)}
    return base64.urlsafe_b64encode(
        history.encode(value)).decode().rstrip('=')


async def list_(call):
    """List objects, all at once or in pages of one version."""
    opts = query_parameters.ListOptions.read(call.query, False)
    view, selector = call.view, call.selector()
    collection = call.store.collection(call.kind)
    namespace = call.target.namespace or None
    version, start = call.store.version, None
    if opts.token:
        if opts.version:
            raise errors.bad_request('specifying resource version is not '
                                     'allowed when using continue')
        version, start = _read_token(opts.token)
        version = version if version >= 0 else call.store.version
        try:
            records = collection.at_version(version, namespace)
        except errors.ApiError:
            raise expired(opts.token) from None
    elif opts.version and opts.version > version:
        raise errors.from_the_future(opts.version, version)
    elif opts.match == 'Exact' and opts.version:
        version = opts.version
        records = collection.at_version(version, namespace)
    else:
        records = collection.current(namespace)
    if start:
        records = [r for r in records if r.key > start]
    if selector:
        # One more than a page shows that there is another.
        records = list(itertools.islice(
            (r for r in records if selector.matches(r.obj)),
            opts.limit + 1 if opts.limit else None))
    meta = {'resourceVersion': str(version)}
    if opts.limit and len(records) > opts.limit:
        if not selector:
            meta['remainingItemCount'] = len(records) - opts.limit
        records = records[:opts.limit]
        meta['continue'] = _token(version, records[-1].key)
    return call.respond(view.list(records, meta))


async def watch(call):
    """Stream changes until the watch ends."""
    opts = query_parameters.ListOptions.read(
        call.query, True, call.server.streaming_lists)
    return await watches.serve(
        call.server, call.request, call.kind, call.view,
        call.selector(call.target.name), call.target.namespace or None, opts)


class Validation:
    """Handling of unknown and duplicate fields (``fieldValidation``)."""

    def __init__(self, call):
        self.mode = call.query.get('fieldValidation') or 'Warn'
        if self.mode not in ('Ignore', 'Warn', 'Strict'):
            raise errors.ApiError(
                422, 'Invalid', 'options.meta.k8s.io "" is invalid: '
                f'fieldValidation: Unsupported value: "{self.mode}": '
                'supported values: "", "Ignore", "Strict", "Warn"')
        self._call = call
        watching = self.mode != 'Ignore'
        self.duplicates = [] if watching else None
        self.unknown = [] if watching else None

    def faults(self):
        """Return the messages about unknown and duplicate fields."""
        return ([f'duplicate field "{n}"' for n in self.duplicates or ()]
                + [f'unknown field "{n}"' for n in self.unknown or ()])

    def check(self):
        """Refuse unknown and duplicate fields in strict mode.

        :returns: warnings in the other modes.
        :raises errors.ApiError: 400.
        """
        found = list(dict.fromkeys(self.faults()))
        if found and self.mode == 'Strict':
            kind = self._call.kind
            raise errors.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled '
                f'as a {kind.kind}: strict decoding error: '
                + ', '.join(found))
        return found

    def write(self, **more):
        """Return the :class:`store.Write` of the call."""
        call = self._call
        return store.Write(call.manager(), call.user.name,
                           call.dry_run(), self.unknown, self.check,
                           identity=call.user, **more)


def _check_place(call, obj):
    """Check that the namespaces of the path and of the object agree."""
    metadata.check_types(call.kind, obj)
    meta = obj['metadata']
    if not call.kind.namespaced:
        return
    if meta.setdefault('namespace', call.target.namespace) != (
            call.target.namespace):
        raise errors.bad_request(
            'the namespace of the provided object does not match the '
            'namespace sent on the request')


async def create(call):
    """Create an object, or answer a review."""
    validation = Validation(call)
    obj = await bodies.read_object(call.request, call.kind,
                                   validation.duplicates)
    if call.kind.create:
        json_copy.drop_nulls(obj)
        store.decode(call.kind, obj)
        return respond(history.encode(call.kind.create(obj, call)), 201)
    _check_place(call, obj)
    write = validation.write(own=True)
    made = call.store.create(call.kind, obj, write=write)
    return call.respond(call.one(made), 201, write.warnings)


async def update(call):
    """Replace an object, or its status."""
    validation = Validation(call)
    obj = await bodies.read_object(call.request, call.kind,
                                   validation.duplicates)
    _check_place(call, obj)
    meta, name = obj['metadata'], call.target.name
    if meta.setdefault('name', name) != name:
        raise errors.bad_request(
            f'the name of the object ({meta["name"]}) does not match the '
            f'name on the URL ({name})')
    if not meta.get('resourceVersion') and not (
            call.kind.unconditional_update):
        call.store.get(call.kind, call.target.namespace, name)
        raise errors.invalid(call.kind, name, [errors.Cause(
            'FieldValueInvalid', 'Invalid value: 0: must be specified for '
            'an update', 'metadata.resourceVersion')])
    write = validation.write(own=True)
    made = call.store.update(call.kind, obj, write=write,
                             subresource=call.target.subresource)
    return call.respond(call.one(made), 200, write.warnings)


async def patch(call):
    """Patch an object, or its status; see ``patching``."""
    validation = Validation(call)
    made, created, warnings = await patching.patch(call, validation)
    return call.respond(call.one(made), 201 if created else 200,
                        warnings)


_DELETE_OPTIONS = kinds.Kind(
    '', 'v1', 'DeleteOptions', '', '', schema=core_schemas.thing(
        gracePeriodSeconds=core_schemas.INTEGER,
        propagationPolicy=core_schemas.STRING,
        orphanDependents=core_schemas.BOOLEAN, dryRun=core_schemas.STRINGS,
        preconditions=core_schemas.thing(
            uid=core_schemas.STRING, resourceVersion=core_schemas.STRING)))


async def _delete_options(call):
    """Read the options of a DELETE from its body or its query."""
    raw = await bodies.read(call.request)
    body = {}
    if raw.strip():
        media = bodies.media_type(call.request)
        parsers = {'': bodies.parse_json, negotiation.JSON:
                   bodies.parse_json, negotiation.YAML: bodies.parse_yaml,
                   protobuf.MEDIA: protobuf.decode}
        if media not in parsers:
            raise errors.unsupported_media_type(
                [negotiation.JSON, negotiation.YAML])
        body = parsers[media](raw)
        if not isinstance(body, dict):
            raise errors.bad_request('DeleteOptions must be an object')
        json_copy.drop_nulls(body)
        store.decode(_DELETE_OPTIONS, body)
    grace = body.get('gracePeriodSeconds')
    if grace is None and call.query.get('gracePeriodSeconds'):
        grace = query_parameters.number(call.query, 'gracePeriodSeconds')
    if grace is not None and grace < 0:
        raise errors.bad_request('gracePeriodSeconds must not be negative')
    policy = body.get('propagationPolicy') or call.query.get(
        'propagationPolicy')
    orphan = body.get('orphanDependents')
    if orphan is None and 'orphanDependents' in call.query:
        orphan = query_parameters.flag(call.query, 'orphanDependents')
    if policy not in (None, 'Background', 'Foreground', 'Orphan'):
        raise errors.ApiError(
            422, 'Invalid', 'DeleteOptions.meta.k8s.io "" is invalid: '
            f'propagationPolicy: Unsupported value: "{policy}": supported '
            'values: "Background", "Foreground", "Orphan"')
    if orphan is not None and policy is None:
        policy = 'Orphan' if orphan else 'Background'
    conditions = body.get('preconditions') or {}
    return {'grace': grace, 'propagation': policy,
            'uid': conditions.get('uid'),
            'version': conditions.get('resourceVersion'),
            'write': store.Write(
                user=call.user.name, dry_run=call.dry_run(body),
                identity=call.user)}


async def delete(call):
    """Delete an object, or mark it for deletion if it has finalizers."""
    wanted = await _delete_options(call)
    target, kind = call.target, call.kind
    was = call.store.delete(kind, target.namespace, target.name, **wanted)
    left = call.store.find(kind, target.namespace, target.name)
    if left is not None and not wanted['write'].dry_run:
        return call.respond(call.one(left), 200,
                            wanted['write'].warnings)
    details = {'name': target.name}
    if kind.group:
        details['group'] = kind.group
    details.update(kind=kind.plural, uid=was['metadata']['uid'])
    return respond(history.encode(
        {'kind': 'Status', 'apiVersion': 'v1', 'metadata': {},
         'status': 'Success', 'details': details}),
        200, wanted['write'].warnings)


async def deletecollection(call):
    """Delete all selected objects."""
    wanted = await _delete_options(call)
    selector = call.selector()
    view = call.view
    collection = call.store.collection(call.kind)
    gone = []
    for record in collection.current(call.target.namespace or None):
        if not selector or selector.matches(record.obj):
            try:
                call.store.delete(call.kind, *record.key, **wanted)
            except errors.ApiError as exc:
                if exc.code != 404:
                    raise
            gone.append(record)
    return call.respond(view.list(
        gone, {'resourceVersion': str(call.store.version)}))


VERBS = {'get': get, 'list': list_, 'watch': watch, 'create': create,
         'update': update, 'patch': patch, 'delete': delete,
         'deletecollection': deletecollection}


async def carry_out(call):
    """Carry out a call.

    :param call: the :class:`Call`.
    :returns: a response.
    :raises errors.ApiError: the call is refused.
    """
    # Negotiate the response before writing anything: this raises 406 for a
    # client that accepts no supported media type.
    _ = call.view
    return await VERBS[call.verb](call)


def verb_of(method, name, query):
    """Return the verb of a request, or None."""
    if method in ('GET', 'HEAD'):
        if query_parameters.flag(query, 'watch'):
            return 'watch'
        return 'get' if name else 'list'
    if method == 'DELETE':
        return 'delete' if name else 'deletecollection'
    return {('POST', False): 'create', ('PUT', True): 'update',
            ('PATCH', True): 'patch'}.get((method, bool(name)))
