# SPDX-License-Identifier: Apache-2.0
"""Follows every link of a Redfish service, as a curious client would."""

import collections

ROOT = '/redfish/v1/'


def links(value):
    """Yield every path that a body leads to, wherever it stands.

    Those of actions are left out: they are no resources.
    """
    if isinstance(value, list):
        for one in value:
            yield from links(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if not isinstance(one, str):
                yield from links(one)
            elif (name in ('@odata.id', 'Uri', 'ServerSentEventUri',
                           '@Redfish.ActionInfo', 'Members@odata.nextLink')
                  or name.endswith('Link')) and one.startswith('/'):
                yield one.partition('#')[0]


def targets(value):
    """Yield the target of every action."""
    if isinstance(value, list):
        for one in value:
            yield from targets(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name == 'target' and isinstance(one, str):
                yield one
            else:
                yield from targets(one)


def crawl(get, start=ROOT):
    """Read all there is.

    :param get: function of a path that returns the response of a GET,
        not read to its end
    :returns: dict of path to (code, body, path it was first linked from);
        the body None when it is no JSON
    """
    found = {}
    queue = collections.deque([(start, None)])
    while queue:
        path, source = queue.popleft()
        if path in found:
            continue
        response = get(path)
        body = None
        if response.headers.get('Content-Type') == 'application/json':
            body = response.json()
        response.close()
        found[path] = response.status_code, body, source
        if response.status_code == 200:
            queue += [(link, path) for link in links(body)]
    return found
