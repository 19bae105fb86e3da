# SPDX-License-Identifier: Apache-2.0
"""``sushy-kubevirt-redfish`` as it is started in a pod, as a fixture.

Config file and environment are the operator's own; only the ports are chosen
by the kernel.
"""

import os
import pathlib

import fixtures
import requests

from kubevirt_sandbox.testing import certificates
from kubevirt_sandbox.testing import process
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from tests.functional import mount
from tests.functional import operator
from tests.functional import sandbox

USER = 'admin'


class RedfishPod(fixtures.Fixture):
    """The container ``redfish`` of a BMC, with the rights it has there.

    ``url`` is where Redfish is, ``health`` where probes and metrics are,
    ``ca`` the path of the authority's certificate, ``password`` that of
    ``USER``.

    :param cluster: a :class:`tests.functional.sandbox.Sandbox`.
    :param vm: name of the VM, in namespace ``default``; for one pod only.
    :param plain: whether to serve plain HTTP.
    :param settings: text that is added to the config file.
    """

    def __init__(self, cluster, vm='vm-0', plain=False, settings=''):
        super().__init__()
        self.cluster = cluster
        self.vm = vm
        self.plain = plain
        self.settings = settings

    def _setUp(self):
        self.auth = self.useFixture(mount.Mount())
        self.tls = self.useFixture(mount.Mount())
        self.home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.set_password('first password')
        temporary = self.home / 'tmp'
        temporary.mkdir()
        # As an emptyDir is.
        temporary.chmod(0o777)
        self._certificates = 0
        self.renew()
        bmc = spec.read({
            'metadata': {'name': self.vm, 'namespace': 'default', 'uid': 'u'},
            'spec': {'virtualMachineRef': {'name': self.vm},
                     'redfish': {'plainHTTP': self.plain}}})
        config = self.home / config_map.FILE
        config.write_text(config_map.text(bmc)
                          + 'SUSHY_EMULATOR_LISTEN_PORT = 0\n' + self.settings)
        self.process = self.useFixture(process.Process(
            ['sushy-kubevirt-redfish'],
            ready=r'Redfish on (\S+), probes and metrics on (\S+)',
            env=process.environment(self.home, {
                'KUBECONFIG': self._account(bmc), 'POD_IP': '127.0.0.1',
                'VIRTBMC_HEALTH_PORT': '0', 'TMPDIR': temporary,
                'SUSHY_EMULATOR_CONFIG': config,
                config_map.AUTH_VARIABLE: self.auth.path,
                config_map.TLS_VARIABLE: self.tls.path,
                'MALLOC_ARENA_MAX': '1', 'PYTHONNODEBUGRANGES': '1'})))
        self.url, self.health = self.process.match.groups()
        self.port = int(self.url.rpartition(':')[2])

    def _account(self, bmc):
        """Make what the operator makes for it in the cluster.

        :returns: path of a kubeconfig
        """
        account = rbac.account(bmc)
        name = account['metadata']['name']
        if self.cluster.get('serviceaccounts', name) is None:
            self.cluster.apply(sandbox.MANIFESTS / 'base' / 'admission.yaml')
            for plural, made in (
                    ('serviceaccounts', account),
                    ('roles', rbac.role(bmc)),
                    ('rolebindings', rbac.binding(bmc)),
                    ('secrets', rbac.state(self.cluster.vm(self.vm)))):
                for reference in made['metadata'].get('ownerReferences', ()):
                    if reference['uid'] == bmc.uid:
                        # There is no such BMC.
                        del made['metadata']['ownerReferences']
                        break
                self.cluster.create(plural, made)
        return self.cluster.account(name)

    def set_password(self, password):
        """Have the Secret's new password mounted."""
        self.password = password
        self.auth.write(username=USER.encode(), password=password.encode())

    def renew(self):
        """Have a new certificate, of a new authority, mounted."""
        made = certificates.make(['127.0.0.1'])
        self._certificates += 1
        self.ca = self.home / ('ca-%d.crt' % self._certificates)
        self.ca.write_bytes(made.ca)
        self.tls.write(tls_crt=made.certificate, tls_key=made.key)

    def curl(self, path, *words, config='', ca=None):
        """Run ``curl -i``: see `operator.curl`."""
        return operator.curl(self.url + path, '--cacert', ca or self.ca,
                             *words, config=config)

    def request(self, method, path, body=None, expect=None, password=None,
                **options):
        """Make one call with the account's password.

        :returns: :class:`requests.Response`
        """
        with requests.Session() as session:
            session.trust_env = False
            response = session.request(
                method, self.url + path, json=body, verify=str(self.ca),
                auth=(USER, password or self.password), timeout=30,
                allow_redirects=False, **options)
        if expect is not None and response.status_code != expect:
            raise AssertionError('%s %s: %d instead of %d: %s' % (
                method, path, response.status_code, expect, response.text))
        return response

    def probe(self, path):
        """:returns: (code, text) of a probe."""
        response = requests.get(self.health + path, timeout=10)
        return response.status_code, response.text.strip()

    def metric(self, start):
        """:returns: value of the first metric that starts so; or None."""
        for line in self.probe('/metrics')[1].splitlines():
            if line.startswith(start):
                return float(line.rpartition(' ')[2])
        return None

    def cpu(self):
        """:returns: seconds of CPU the process has taken."""
        with open('/proc/%d/stat' % self.process.pid) as stream:
            fields = stream.read().rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf(
            'SC_CLK_TCK')
