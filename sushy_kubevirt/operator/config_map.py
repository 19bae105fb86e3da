# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap with the options of the emulator in a BMC's pod.

They are data, which the pod checks: see `options_file`. They have neither
passwords nor keys: they are mounted, and environment variables name the
folders.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import hashlib
import json
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import spec
from sushy_kubevirt.pod import options_file

#: Folders in which the Secrets are mounted.
AUTH_FOLDER = '/etc/virtbmc/auth'
TLS_FOLDER = '/etc/virtbmc/tls'

#: TCP port of Redfish in the pod, which runs without privileges, and that of
#: HTTP beside HTTPS.
PORT, HTTP_PORT = 8000, 8080

#: Environment variable with the latter.
HTTP_VARIABLE = 'VIRTBMC_HTTP_PORT'

#: Seconds until a watch is renewed. Renewal is a request, and there may be
#: thousands of pods. A lost connection is noticed sooner.
WATCH_SECONDS = 300

_OURS = options_file.PREFIX

#: Option without which the web page is served.
WEB_PAGE = _OURS + 'WEB_PAGE'

#: Option with the names of options in messages.
OPTION_NAMES = _OURS + 'OPTION_NAMES'

#: Option that names a ConfigMap, which the pod has to have the right to read.
CA_CONFIG_MAP = _OURS + 'MEDIA_CA_CONFIG_MAP'

# What messages to a BMC's clients call the options of the emulator: fields of
# the resource, and options of the operator.
_FIELDS = {
    'MEDIA_STORAGE_CLASS': 'spec.virtualMedia.storageClassName',
    'MEDIA_ACCESS_MODE': 'spec.virtualMedia.accessMode',
    'MEDIA_VOLUME_MODE': 'spec.virtualMedia.volumeMode',
    'MEDIA_SIZE_MARGIN': f'annotation {stored_names.SIZE_MARGIN}',
    'MEDIA_CA_CONFIG_MAP':
    'spec.redfish.virtualMedia.tls.caBundleConfigMapRef',
    'MEDIA_MODE': 'spec.virtualMedia.mode',
    'MEDIA_DEFAULT_SIZE': 'spec.virtualMedia.defaultSize',
    'MEDIA_ALLOWED_HOSTS': 'spec.virtualMedia.allowedHosts',
    'MEDIA_ALLOW_LOOPBACK': 'spec.virtualMedia.allowLoopback',
}
_OPERATOR_OPTIONS = {'MEDIA_UPLOAD_PROXY_URL': '--upload-proxy-url',
                     'MEDIA_DENIED_HOSTS': '--denied-hosts',
                     'EVENT_DENIED_HOSTS': '--denied-hosts'}


@dataclasses.dataclass(frozen=True)
class Proxy:
    """CDI's upload proxy.

    :param url: as pods reach it, https
    :param authorities: CA certificates that it is checked against, PEM; None
        for those of the image's system
    """

    url: str
    authorities: str | None = None


@dataclasses.dataclass(frozen=True)
class Denied:
    """Hosts that BMCs may not reach; entries are those of `url_policy`.

    :param excepted: the exceptions from both
    :param cluster: the cluster's own hosts, which change while pods run
    """

    hosts: tuple[str, ...] = ()
    excepted: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """Text of the file with the cluster's hosts; '' without any."""
        return ''.join(f'{host}\n' for host in self.cluster)


def config_map(bmc: spec.Bmc, proxy: Proxy | None = None,
               denied: Denied = Denied()) -> objects.Json:
    """Make the ConfigMap."""
    data = {options_file.FILE: text(bmc, proxy, denied)}
    if proxy and proxy.authorities:
        # The pod reads it for each upload.
        data[options_file.PROXY_FILE] = proxy.authorities
    if denied.file:
        # The pod reads it for each URL.
        data[options_file.HOSTS_FILE] = denied.file
    return {'apiVersion': 'v1', 'kind': 'ConfigMap',
            'metadata': naming.metadata(bmc, naming.base(bmc.name)),
            'data': data}


def digest(bmc: spec.Bmc, proxy: Proxy | None = None,
           denied: Denied = Denied()) -> str:
    """Make a short text that changes with the options that a running pod does
    not read again."""
    return hashlib.sha256(text(bmc, proxy, denied).encode()).hexdigest()[:16]


def text(bmc: spec.Bmc, proxy: Proxy | None = None,
         denied: Denied = Denied()) -> str:
    """Make the file with the options."""
    return json.dumps({options_file.PORT: PORT, **options(bmc, proxy, denied)},
                      indent=1, sort_keys=True) + '\n'


def options(bmc: spec.Bmc, proxy: Proxy | None = None,
            denied: Denied = Denied()) -> dict[str, typing.Any]:
    """Make the emulator's options for a BMC, without the port."""
    values = dict(_options(bmc))
    if proxy:
        values[_OURS + 'MEDIA_UPLOAD_PROXY_URL'] = proxy.url
        if proxy.authorities:
            values[_OURS + 'MEDIA_UPLOAD_PROXY_CA'] = options_file.PROXY_FILE
    for name, value in (
            ('DENIED_HOSTS', list(denied.hosts)),
            ('DENIED_EXCEPT', list(denied.excepted)),
            ('DENIED_HOSTS_FILE', denied.file and options_file.HOSTS_FILE)):
        if value:
            values.update(dict.fromkeys(
                (f'{_OURS}MEDIA_{name}', f'{_OURS}EVENT_{name}'), value))
    return values


def _options(bmc: spec.Bmc) -> abc.Iterator[tuple[str, typing.Any]]:
    yield _OURS + 'VM', str(bmc.vm)
    yield _OURS + 'WATCH_SECONDS', WATCH_SECONDS
    yield _OURS + 'SERVICE_PORTS', _ports(bmc)
    yield OPTION_NAMES, {
        **{option: f'{field} of {naming.KIND} {bmc.namespace}/{bmc.name}'
           for option, field in _FIELDS.items()},
        **{option: f'{name} of {naming.OPERATOR}'
           for option, name in _OPERATOR_OPTIONS.items()}}
    media = bmc.media
    for name, switched_on in (
            ('ACCOUNT_MANAGEMENT', bmc.account_management),
            ('WEB_PAGE', bmc.redfish.web_page),
            ('MEDIA_VERIFY', media.verify)):
        if not switched_on:
            yield _OURS + name, False
    for name, value in (
            ('RUN_STRATEGY', bmc.run_strategy),
            ('MEDIA_STORAGE_CLASS', media.storage_class),
            ('MEDIA_ACCESS_MODE', media.access_mode),
            ('MEDIA_VOLUME_MODE', media.volume_mode),
            ('MEDIA_SIZE_MARGIN', media.size_margin),
            ('MEDIA_CA_CONFIG_MAP', media.ca_config_map),
            ('MEDIA_MODE', media.mode),
            ('MEDIA_DEFAULT_SIZE', media.default_size),
            ('MEDIA_ALLOW_LOOPBACK', media.allow_loopback),
            ('MEDIA_ALLOWED_HOSTS', list(media.allowed_hosts))):
        if value:
            yield _OURS + name, value


def _ports(bmc: spec.Bmc) -> dict[str, int]:
    """List the Service's ports by protocol."""
    ports = {'HTTP' if bmc.redfish.plain else 'HTTPS':
             bmc.service.redfish_port}
    if bmc.http_beside_https or bmc.redfish.both and naming.vm_service(bmc):
        ports['HTTP'] = spec.HTTP_PORT
    if bmc.ipmi:
        ports['IPMI'] = bmc.service.ipmi_port
    return ports
