# SPDX-License-Identifier: Apache-2.0
"""Writes the kubeconfig for clients of the sandbox."""
import base64
import os
import tempfile

NAME = 'sushy-kubevirt-sandbox'

# Without PyYAML, which takes long to import.
_CONTENT = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: {ca}
    server: {url}
  name: {name}
contexts:
- context:
    cluster: {name}
    namespace: default
    user: admin
  name: {name}
current-context: {name}
kind: Config
users:
- name: admin
  user:
    token: {token}
"""


def write(path, url, ca, token):
    """Write a kubeconfig, readable by its owner only, all or nothing.

    :param path: the file.
    :param url: URL of the API server.
    :param ca: the CA's certificate, PEM.
    :param token: bearer token of the administrator.
    """
    content = _CONTENT.format(name=NAME, url=url, token=token,
                              ca=base64.b64encode(ca).decode())
    path = os.path.abspath(path)
    # mkstemp makes the file with mode 0600.
    handle, unfinished = tempfile.mkstemp(
        prefix='.kubeconfig-', dir=os.path.dirname(path))
    try:
        with open(handle, 'w') as file:
            file.write(content)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
