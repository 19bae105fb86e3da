# SPDX-License-Identifier: Apache-2.0
"""Requests to the Kubernetes API, and what its answers mean.

One try each: who wants a write to survive a bad moment wraps it in `retry`.
"""


class Client:
    """Speaks to one API server. Safe to use from several threads."""

    def __init__(self, connection, options):
        self._connection = connection
        self._options = options

    def get(self, resource, namespace, name):
        """Read one object.

        :param resource: a `resources.Resource`
        :returns: the object, a dict
        """

    def pages(self, resource, namespace=None, label_selector='',
              field_selector=''):
        """Read a collection, a page at a time.

        :returns: iterator of (items, resourceVersion)
        """

    def watch(self, resource, namespace=None, version='', label_selector='',
              field_selector=''):
        """Follow a collection from a version on.

        :returns: iterator of (type, object)
        """

    def patch(self, resource, namespace, name, body, subresource=None):
        """Change an object: a JSON patch if body is a list, else a merge
        patch.

        :returns: the object as it is now
        """

    def put(self, path, body=None):
        """PUT to a path, which is how KubeVirt's actions are called.

        :returns: the answer, a dict; {} when there is none
        """

    def post(self, path, body):
        """Create an object. :returns: it as it is now"""

    def delete(self, resource, namespace, name, body=None):
        """Delete an object."""

    def close(self):
        """Let go of all connections."""
