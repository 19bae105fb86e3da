# SPDX-License-Identifier: Apache-2.0
"""Writes the kubeconfig for clients of the sandbox."""
import base64
import os
import tempfile

import yaml

NAME = 'sushy-kubevirt-sandbox'


def write(path, url, ca, token):
    """Write a kubeconfig, readable by its owner only, all or nothing.

    :param path: the file.
    :param url: URL of the API server.
    :param ca: the CA's certificate, PEM.
    :param token: bearer token of the administrator.
    """
    content = {
        'apiVersion': 'v1', 'kind': 'Config', 'current-context': NAME,
        'clusters': [{'name': NAME, 'cluster': {
            'server': url, 'certificate-authority-data':
                base64.b64encode(ca).decode()}}],
        'users': [{'name': 'admin', 'user': {'token': token}}],
        'contexts': [{'name': NAME, 'context': {
            'cluster': NAME, 'user': 'admin', 'namespace': 'default'}}]}
    path = os.path.abspath(path)
    # mkstemp makes the file with mode 0600.
    handle, unfinished = tempfile.mkstemp(
        prefix='.kubeconfig-', dir=os.path.dirname(path))
    try:
        with open(handle, 'w') as file:
            yaml.safe_dump(content, file)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
