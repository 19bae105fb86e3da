# SPDX-License-Identifier: Apache-2.0
"""The API group subresources.kubevirt.io: operations on VMs and VMIs.

Registers every subresource that KubeVirt's discovery lists. Subresources that
the sandbox does not support (port-forward, migration, ...) answer with 501.

Source: pkg/virt-api/api.go, pkg/virt-api/rest (KubeVirt 1.9).
"""

from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import web
from kubevirt_sandbox.kubevirt import consoles
from kubevirt_sandbox.kubevirt import vm_subresources
from kubevirt_sandbox.kubevirt import vmi_subresources
from kubevirt_sandbox.kubevirt import volume_subresources

GROUP = 'subresources.kubevirt.io'
VERSIONS = ('v1', 'v1alpha3')

_VMS, _VMIS = 'virtualmachines', 'virtualmachineinstances'
_UNSUPPORTED = {
    _VMS: (('PUT', 'memorydump'), ('PUT', 'removememorydump'),
           ('PUT', 'evacuate/cancel'), ('PUT', 'migrate'),
           ('GET', 'objectgraph'), ('GET', 'portforward')),
    _VMIS: (('GET', 'vnc/screenshot'), ('GET', 'portforward'),
            ('GET', 'usbredir'), ('GET', 'vsock'),
            ('PUT', 'addvolume'), ('PUT', 'removevolume'),
            ('PUT', 'freeze'), ('PUT', 'unfreeze'), ('GET', 'guestosinfo'),
            ('GET', 'userlist'), ('GET', 'filesystemlist'),
            ('PUT', 'backup'), ('PUT', 'redefine-checkpoint'),
            ('PUT', 'evacuate/cancel'), ('GET', 'objectgraph'),
            ('GET', 'sev/fetchcertchain'),
            ('GET', 'sev/querylaunchmeasurement'),
            ('PUT', 'sev/setupsession'), ('PUT', 'sev/injectlaunchsecret')),
}

#: Subresources that answer in JSON. Discovery gives no media type for others.
_JSON = ('expand-spec', 'guestosinfo', 'userlist', 'filesystemlist',
         'objectgraph', 'sev/fetchcertchain', 'sev/querylaunchmeasurement')


def install(server, kinds, config, controller, version):
    """Serve the subresources.

    :param server: the API server.
    :param kinds: the :class:`kubevirt_kinds.Kinds` of this cluster.
    :param config: a :class:`config.ClusterConfig`.
    :param controller: the VMIs' controller, which owns the guests.
    :param version: the version of KubeVirt.
    """
    vms = vm_subresources.VmSubresources(kinds)
    vmis = vmi_subresources.VmiSubresources(kinds, controller)
    volumes = volume_subresources.VolumeSubresources(kinds, config)
    handlers = {
        _VMS: {**vms.handlers(), 'addvolume': ('PUT', volumes.add),
               'removevolume': ('PUT', volumes.remove)},
        _VMIS: {**vmis.handlers(),
                **consoles.Consoles(kinds, controller).handlers()},
    }
    for group_version in VERSIONS:
        for plural, subresources in handlers.items():
            for name, (method, handler) in subresources.items():
                server.register_subresource(
                    GROUP, group_version, plural, name,
                    _accepted(name, handler), methods=(method,))
            for method, name in _UNSUPPORTED[plural]:
                server.register_subresource(
                    GROUP, group_version, plural, name,
                    _accepted(name, _not_implemented), methods=(method,))
        base = f'/apis/{GROUP}/{group_version}'
        for path, body in (('version', _version(version)),
                           ('healthz', _healthz(version)),
                           ('guestfs', _guestfs(version))):
            server.register_route('GET', f'{base}/{path}', _answer(body))


def _accepted(name, handler):
    """Answer only clients that accept the media type of a subresource.

    Source: ``matchesAccept`` in route.go and ``detectRoute`` in jsr311.go of
    go-restful 3.
    """
    forms = {'*/*', 'application/json'} if name in _JSON else {'*/*'}

    async def checked(request):
        header = request.http.headers.get('Accept') or '*/*'
        if forms.isdisjoint(clause.partition(';')[0].strip()
                            for clause in header.split(',')):
            return web.Response(status=406, text='406: Not Acceptable\n\n'
                                'Available representations: '
                                + ', '.join(sorted(forms - {'*/*'})))
        return await handler(request)
    return checked


async def _not_implemented(request):
    raise errors.ApiError(
        501, 'NotImplemented', 'the sandbox cannot '
        f'{request.http.path.rpartition("/")[2]}')


def _answer(body):
    async def handler(_request):
        return web.json_response(body)
    return handler


def _version(version):
    return {'gitVersion': version, 'gitCommit': 'sandbox',
            'gitTreeState': 'clean', 'buildDate': '2026-01-01T00:00:00Z',
            'goVersion': 'none', 'compiler': 'none',
            'platform': 'linux/amd64'}


def _healthz(version):
    return {'apiserver': {'connectivity': 'ok', 'version': version},
            'config-resource-version': '1'}


def _guestfs(version):
    return {'registry': 'quay.io/kubevirt', 'tag': version, 'digest': '',
            'imagePrefix': '', 'gsImage': f'quay.io/kubevirt/libguestfs-'
            f'tools:{version}'}
