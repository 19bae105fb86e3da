# SPDX-License-Identifier: Apache-2.0
"""Parses YAML; :mod:`bodies` imports it for the first body that is no JSON."""
import yaml

from kubevirt_sandbox.api import errors


class _Loader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):
    """YAML without dates: in Kubernetes they are strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers
            if tag != 'tag:yaml.org,2002:timestamp']
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()}


def load(raw):
    """Parse YAML.

    :raises errors.ApiError: 400.
    """
    try:
        # Anchors are refused: few bytes can become very many.
        for token in yaml.scan(raw, Loader=_Loader):
            if isinstance(token, yaml.AliasToken):
                raise errors.bad_request('yaml: aliases are not accepted')
        return yaml.load(raw, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise errors.bad_request(
            f'error decoding YAML: {exc}') from None
