# SPDX-License-Identifier: Apache-2.0
"""Options of a BMC's pod: data that the operator writes into a ConfigMap.

A config file of sushy-emulator is Python: a client that may change it can run
code in the pod. The operator therefore writes JSON, and the pod takes only the
options that the operator sets: others name files, such as a kubeconfig with a
command in it.
"""

from __future__ import annotations

from collections import abc
import json
import os
import typing

from sushy_kubevirt.kube import errors

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

#: Environment variable with the path of the file.
VARIABLE = 'VIRTBMC_OPTIONS'

#: Keys of the ConfigMap, and the folder in which it is mounted.
FILE = 'options.json'
PROXY_FILE = 'upload-proxy.crt'
HOSTS_FILE = 'cluster-hosts.txt'
FOLDER = '/etc/virtbmc/config'

#: Environment variable with that folder, of a shared pod, whose options are
#: not in the file.
FOLDER_VARIABLE = 'VIRTBMC_OPTIONS_FOLDER'

#: Environment variables with the folders of the mounted Secrets: login, and
#: certificate of HTTPS.
AUTH_VARIABLE = 'VIRTBMC_AUTH_FOLDER'
TLS_VARIABLE = 'VIRTBMC_TLS_FOLDER'

#: Prefix of the driver's options.
PREFIX = 'SUSHY_EMULATOR_KUBEVIRT_'

#: TCP port of Redfish.
PORT = 'SUSHY_EMULATOR_LISTEN_PORT'

#: Options that the file may set.
NAMES = frozenset((PORT, *(PREFIX + name for name in (
    'VM', 'WATCH_SECONDS', 'SERVICE_PORTS', 'OPTION_NAMES',
    'ACCOUNT_MANAGEMENT', 'WEB_PAGE', 'RUN_STRATEGY', 'MEDIA_STORAGE_CLASS',
    'MEDIA_ACCESS_MODE', 'MEDIA_VOLUME_MODE', 'MEDIA_SIZE_MARGIN',
    'MEDIA_CA_CONFIG_MAP', 'MEDIA_MODE', 'MEDIA_DEFAULT_SIZE', 'MEDIA_VERIFY',
    'MEDIA_ALLOW_LOOPBACK', 'MEDIA_ALLOWED_HOSTS', 'MEDIA_DENIED_HOSTS',
    'MEDIA_DENIED_HOSTS_FILE', 'MEDIA_DENIED_EXCEPT', 'EVENT_DENIED_HOSTS',
    'EVENT_DENIED_HOSTS_FILE', 'EVENT_DENIED_EXCEPT',
    'MEDIA_UPLOAD_PROXY_URL', 'MEDIA_UPLOAD_PROXY_CA'))))

# Those that are a file's name, and that name.
_FILES = {PREFIX + 'MEDIA_UPLOAD_PROXY_CA': PROXY_FILE,
          PREFIX + 'MEDIA_DENIED_HOSTS_FILE': HOSTS_FILE,
          PREFIX + 'EVENT_DENIED_HOSTS_FILE': HOSTS_FILE}


def check(options: object, folder: str = FOLDER) -> objects.Json:
    """Check the names of options; their values are checked by the emulator.

    :param options: of the file, or of an entry of a shared pod's list
    :param folder: where the ConfigMap is mounted
    :returns: the options, with the paths of files for their names
    :raises: `errors.ConfigError`
    """
    if not isinstance(options, dict):
        raise errors.ConfigError('The options are no JSON object')
    unknown = sorted(options.keys() - NAMES)
    if unknown:
        raise errors.ConfigError('These options cannot be set in a BMC\'s '
                                 f"pod: {', '.join(unknown)[:200]}")
    paths = {}
    for option in options.keys() & _FILES.keys():
        if options[option] != _FILES[option]:
            raise errors.ConfigError(f'{option} must be {_FILES[option]}')
        paths[option] = os.path.join(folder, _FILES[option])
    return {**options, **paths}


def read(path: str) -> objects.Json:
    """Read the file.

    :param path: of the file
    :returns: its options, see `check`
    :raises: `errors.ConfigError`
    """
    try:
        with open(path, encoding='utf-8') as stream:
            options = json.load(stream)
    except (OSError, ValueError, RecursionError) as e:
        raise errors.ConfigError(f'{path} cannot be read: {e}') from None
    return check(options, os.path.dirname(path))


def config(environ: abc.Mapping[str, str]) -> objects.Json:
    """Return the options of sushy-emulator in a BMC's pod.

    :param environ: environment variables of the pod
    :returns: those of the file and those that every pod has
    :raises: `errors.ConfigError`
    """
    options: objects.Json = {
        'SUSHY_EMULATOR_SYSTEM_DRIVER': 'kubevirt',
        'SUSHY_EMULATOR_LISTEN_IP': environ.get('POD_IP'),
        PREFIX + 'ACCOUNTS': environ.get(AUTH_VARIABLE)}
    folder = environ.get(TLS_VARIABLE)
    if folder:
        options.update({
            'SUSHY_EMULATOR_SSL_CERT': os.path.join(folder, 'tls.crt'),
            'SUSHY_EMULATOR_SSL_KEY': os.path.join(folder, 'tls.key')})
    return {**options, **read(environ[VARIABLE])}
