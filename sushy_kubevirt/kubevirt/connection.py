# SPDX-License-Identifier: Apache-2.0
"""Where the API server is and how to be let in."""


class Connection:
    """The way to one API server. Made by `from_options`."""

    @classmethod
    def from_options(cls, kubeconfig=None, context=None):
        """Find the way: the file named, $KUBECONFIG, the account of the pod
        this runs in, ~/.kube/config; the first there is.

        :param kubeconfig: path of a kubeconfig
        :param context: name of a context in it
        :raises: `errors.ConfigError`
        """
