# SPDX-License-Identifier: Apache-2.0
"""Content negotiation of responses and request bodies."""
import functools
from typing import NamedTuple

from kubevirt_sandbox.api import errors

JSON, YAML = 'application/json', 'application/yaml'


class Form(NamedTuple):
    """A representation of a response.

    :param media: ``application/json`` or ``application/yaml``.
    :param view: ``''``, ``Table``, ``PartialObjectMetadata`` or
        ``PartialObjectMetadataList`` (of meta.k8s.io/v1), or
        ``APIGroupDiscoveryList``.
    """

    media: str = JSON
    view: str = ''
    version: str = ''


VIEWS = frozenset((
    ('Table', 'meta.k8s.io', 'v1'),
    ('PartialObjectMetadata', 'meta.k8s.io', 'v1'),
    ('PartialObjectMetadataList', 'meta.k8s.io', 'v1'),
    ('APIGroupDiscoveryList', 'apidiscovery.k8s.io', 'v2')))


def _clauses(header):
    found = []
    for at, clause in enumerate(header.split(',')):
        media, *rest = [part.strip() for part in clause.split(';')]
        options = {}
        for option in rest:
            name, _, value = option.partition('=')
            options[name.strip()] = value.strip().strip('"')
        try:
            quality = float(options.pop('q', 1))
        except ValueError:
            quality = 0
        found.append((-quality, at, media.lower(), options))
    return [c[2:] for c in sorted(found, key=lambda c: c[:2])]


@functools.lru_cache(1000)
def accepted(header, views=VIEWS):
    """Choose the best :class:`Form` for an ``Accept`` header.

    :param views: the views that are possible here.
    :raises errors.ApiError: 406 when none fits.
    """
    if not header:
        return Form()
    for media, options in _clauses(header):
        if media in ('*/*', 'application/*'):
            media = JSON
        if media == 'text/yaml':
            media = YAML
        if media not in (JSON, YAML):
            continue
        if 'as' not in options:
            return Form(media)
        view = options['as'], options.get('g'), options.get('v')
        if view in views:
            return Form(media, view[0], view[2])
    raise errors.not_acceptable([JSON, YAML])
