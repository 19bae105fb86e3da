# SPDX-License-Identifier: Apache-2.0
"""The config file of the emulator in a BMC's pod, in its ConfigMap.

The file is Python, and what a user wrote into the resource stands in it as
literals only. Passwords and keys are no part of it: they are mounted, and the
pod's environment tells where.
"""

import hashlib

from sushy_kubevirt.operator import naming

#: The key of the ConfigMap, and where it and the Secrets are mounted.
FILE = 'emulator.conf'
FOLDER = '/etc/virtbmc/config'
AUTH_FOLDER = '/etc/virtbmc/auth'
TLS_FOLDER = '/etc/virtbmc/tls'

#: Variables of the environment that tell the pod of the last two.
AUTH_VARIABLE = 'VIRTBMC_AUTH_FOLDER'
TLS_VARIABLE = 'VIRTBMC_TLS_FOLDER'

#: Port of Redfish in the pod, which runs without privileges.
PORT = 8000

_OURS = 'SUSHY_EMULATOR_KUBEVIRT_'


def config_map(bmc):
    """The ConfigMap.

    :param bmc: a `spec.Bmc`
    """
    return {'apiVersion': 'v1', 'kind': 'ConfigMap',
            'metadata': naming.metadata(bmc, naming.base(bmc.name)),
            'data': {FILE: text(bmc)}}


def digest(bmc):
    """What changes when the pod has to be made anew for its config file."""
    return hashlib.sha256(text(bmc).encode()).hexdigest()[:16]


def text(bmc):
    """The config file.

    :param bmc: a `spec.Bmc`
    """
    lines = _head(bmc)
    lines += ['%s = %r' % option for option in _options(bmc)]
    return '\n'.join(lines) + '\n'


def _head(bmc):
    lines = ['# Made by %s from %s %s/%s.' % (
        naming.OPERATOR, naming.KIND, bmc.namespace, bmc.name),
        'import os',
        '',
        'from sushy_kubevirt import plugin',
        '',
        'plugin.enable()',
        '',
        "SUSHY_EMULATOR_LISTEN_IP = os.environ['POD_IP']",
        '%sACCOUNTS = os.environ[%r]' % (_OURS, AUTH_VARIABLE)]
    if not bmc.redfish.plain:
        lines += ['SUSHY_EMULATOR_SSL_%s = os.environ[%r] + %r' % (
            name, TLS_VARIABLE, file) for name, file in (
                ('CERT', '/tls.crt'), ('KEY', '/tls.key'))]
    return lines


def _options(bmc):
    yield 'SUSHY_EMULATOR_LISTEN_PORT', PORT
    yield 'SUSHY_EMULATOR_SYSTEM_DRIVER', 'kubevirt'
    yield _OURS + 'VM', str(bmc.vm)
    if bmc.run_strategy:
        yield _OURS + 'RUN_STRATEGY', bmc.run_strategy
    if bmc.media.storage_class:
        yield _OURS + 'MEDIA_STORAGE_CLASS', bmc.media.storage_class
    if bmc.media.mode:
        yield _OURS + 'MEDIA_MODE', bmc.media.mode
    if bmc.media.allowed_hosts:
        yield _OURS + 'MEDIA_ALLOWED_HOSTS', list(bmc.media.allowed_hosts)
