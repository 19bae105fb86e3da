# SPDX-License-Identifier: Apache-2.0
"""The kinds of objects that the server serves.

A :class:`Kind` describes a kind to the server; the :class:`Registry` finds
kinds by group, version and resource name. The store keeps the objects.
"""
from collections.abc import Callable
import dataclasses
import re

from kubevirt_sandbox.api import errors

ALL_VERBS = ('create', 'delete', 'deletecollection', 'get', 'list', 'patch',
             'update', 'watch')


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of ``kubectl get``.

    :param name: the heading, e.g. ``Phase``.
    :param type: ``string``, ``integer``, ``number``, ``boolean``, ``date``.
    :param jsonPath: path of the value, e.g. ``.status.phase``.
    :param priority: 0 always shown, 1 with ``-o wide``.
    :param value: instead of a path, a function of the object.
    """

    name: str
    type: str = 'string'
    jsonPath: str = ''  # noqa: N815 - named as in a CRD
    priority: int = 0
    format: str = ''
    description: str = ''
    value: Callable[[dict], object] | None = None


@dataclasses.dataclass
class Admission:
    """A write before it is stored, for the hooks of its kind.

    :param operation: ``CREATE``, ``UPDATE`` or ``DELETE``.
    :param subresource: ``''`` or e.g. ``status``.
    :param new: the object as it shall be (None for DELETE).
    :param old: the object as it is (None for CREATE); not to be changed.
    :param store: the :class:`store.Store`, to look at other objects.
    :param user: name of the user, e.g. ``kubernetes-admin``; ``''`` for
        controllers without one.
    :param warnings: sentences for the client (HTTP ``Warning`` headers);
        hooks may append.
    :param identity: the :class:`auth.User` who asks, with groups; None for
        controllers.
    """

    operation: str
    subresource: str
    new: dict | None
    old: dict | None
    store: object
    user: str = ''
    warnings: list = dataclasses.field(default_factory=list)
    identity: object = None


@dataclasses.dataclass(eq=False)
class Kind:
    """A kind of objects.

    ``mutate`` and ``validate`` are called in this order on every write,
    also on controllers' writes, and refuse by raising
    :class:`errors.ApiError`.  The schema is checked between the two, as a
    real API server does.

    :param default: fills in defaults before managedFields are computed, so
        that the writer owns them.
    :param schema: OpenAPI v3 structural schema of the whole object; None:
        anything goes.
    :param columns: columns after NAME; none: only the age is shown.
    :param status: has the status subresource: writes of the object leave
        status alone, and writes of the status everything else.
    :param crd: listed as a CustomResourceDefinition.
    :param generation: metadata.generation counts changes of the object.
    :param unconditional_update: a PUT needs no resourceVersion.
    :param selectable_fields: paths allowed in field selectors beside
        metadata.name and metadata.namespace, e.g. ``status.phase``.
    :param omits: empty values are omitted, see :mod:`go_types`.
    :param path_names: names may be any path segment, e.g.
        ``system:discovery``.
    :param verbs: verbs of the API.
    :param create: for kinds that are answered and not stored (reviews,
        upload tokens): function (object, call) -> answer.
    :param terminate: changes an object that is marked for deletion; such a
        kind is also kept by ``spec.finalizers`` (namespaces).
    :param grace: function (object, requested seconds or None) that returns
        the grace period in seconds; the object is marked for deletion and
        kept until it is deleted with 0 seconds (pods).
    :param stored_as: the stored Kind that this is another view of;
        ``to_stored`` and ``from_stored`` translate objects.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    schema: dict | None = None
    columns: tuple[Column, ...] = ()
    status: bool = False
    default: Callable[[dict], None] | None = None
    mutate: Callable[[Admission], None] | None = None
    validate: Callable[[Admission], None] | None = None
    crd: bool = False
    list_kind: str = ''
    generation: bool = True
    unconditional_update: bool = False
    selectable_fields: tuple[str, ...] = ()
    omits: bool = False
    path_names: bool = False
    verbs: tuple[str, ...] = ALL_VERBS
    create: Callable | None = None
    terminate: Callable[[dict], None] | None = None
    grace: Callable[[dict, int | None], int] | None = None
    stored_as: 'Kind | None' = None
    to_stored: Callable[[dict], dict] | None = None
    from_stored: Callable[[dict], dict] | None = None

    def __post_init__(self):
        self.list_kind = self.list_kind or self.kind + 'List'

    @property
    def api_version(self):
        """Return ``group/version``, or ``version`` in the core group."""
        return f'{self.group}/{self.version}' if self.group else self.version

    @property
    def resource(self):
        """Return ``plural.group``, or ``plural`` in the core group."""
        return errors.qualified(self)


_VERSION = re.compile(r'v(\d+)(?:(alpha|beta)(\d+))?')


def priority(version):
    """Sort key of versions: GA first, then beta, alpha, then the rest."""
    match = _VERSION.fullmatch(version)
    if not match:
        return (9, 0, 0, version)
    major, stage, minor = match.groups()
    return ({None: 0, 'beta': 1, 'alpha': 2}[stage], -int(major),
            -int(minor or 0), version)


class Registry:
    """The kinds that are served, in order of registration."""

    def __init__(self):
        #: Goes up with every change.
        self.changes = 0
        self._by_resource = {}
        self._by_kind = {}

    def __iter__(self):
        return iter(list(self._by_resource.values()))

    def add(self, kind):
        """Serve a kind from now on (again, if it was known before)."""
        self.changes += 1
        self._by_resource[(kind.group, kind.version, kind.plural)] = kind
        self._by_kind[(kind.api_version, kind.kind)] = kind

    def remove(self, kind):
        """Serve a kind no longer."""
        self.changes += 1
        self._by_resource.pop((kind.group, kind.version, kind.plural), None)
        self._by_kind.pop((kind.api_version, kind.kind), None)

    def find(self, group, version, plural):
        """Return the Kind of a path of the API, or None."""
        return self._by_resource.get((group, version, plural))

    def of_object(self, api_version, kind):
        """Return the Kind of ``apiVersion`` and ``kind``, or None."""
        return self._by_kind.get((api_version, kind))

    def groups(self):
        """Return ``{group: [version, ...]}``, the preferred version first."""
        found = {}
        for kind in self:
            versions = found.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
                versions.sort(key=priority)
        return found
