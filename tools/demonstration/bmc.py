# SPDX-License-Identifier: Apache-2.0
"""First part of the demonstration: a BMC created by ``kubectl apply``.

The manifests are those of etc/kubernetes, unchanged. The sandbox runs the
operator and the BMC as pods.
"""

import re

from kubevirt_sandbox.testing import process
from tests.fixtures import checkout
from tools.demonstration import step

MANIFESTS = checkout.ROOT / 'etc' / 'kubernetes'

#: Names and password of the sample manifests.
NAME, USER, PASSWORD = 'node-0', 'admin', 'password'

#: All kinds of objects that a BMC has.
_KINDS = ('deployments,pods,services,serviceaccounts,roles,rolebindings,'
          'configmaps,secrets')
_LABEL = 'kubevirt.io/virtualmachinebmc-name=' + NAME


class Script:
    """The steps of this part.

    :param stage: :class:`tools.demonstration.stage.Stage`
    """

    def __init__(self, stage):
        self.stage = stage
        self.sandbox = stage.sandbox
        self.guest = step.Guest(stage.sandbox, NAME)
        self.ca = stage.home / 'bmc-ca.crt'

    # Command builders

    def kubectl(self, words):
        return f'kubectl --kubeconfig {self.stage.kubeconfig} {words}'

    def ipmi(self, words):
        return lambda: (
            f'ipmitool -I lanplus -H {self.stage.address(NAME)} '
            f'-U {USER} -P {PASSWORD} {words}')

    def bmc(self, words):
        # kubectl looks for its plugin kubectl-bmc in PATH.
        return (f'PATH={process.BIN}:$PATH kubectl bmc {words} \\\n    '
                f'--kubeconfig {self.stage.kubeconfig}')

    def curl(self):
        return (
            f'curl --silent --show-error --fail-with-body --cacert {self.ca} '
            f'\\\n    --user {USER}:{PASSWORD} '
            f'https://{self.stage.address(NAME)}/redfish/v1/Systems/1 '
            f"\\\n    | {process.BIN / 'python'} -m json.tool")

    # Checks

    def installed(self, output):
        step.expect('customresourcedefinition' in output
                    and 'deployment.apps/sushy-kubevirt-operator' in output,
                    'unexpected output of kubectl')
        return 'the operator starts, with two replicas'

    def rolled_out(self, output):
        step.expect('successfully rolled out' in output,
                    'unexpected output of kubectl')
        return 'both replicas are ready'

    def has_a_vm(self, output):
        step.expect(self.sandbox.vm(NAME) is not None, 'the VM does not exist')
        return 'the VM exists and is halted'

    def bmc_created(self, output):
        step.expect('virtualmachinebmc.bmc.kubevirt.io/' + NAME in output,
                    'unexpected output of kubectl')
        return 'the operator creates its objects'

    def ready(self, output):
        step.expect('condition met' in output, 'it is not ready')
        return f'the BMC is ready, its address is {self.stage.address(NAME)}'

    def shown(self, output):
        step.expect(self.stage.address(NAME) in output,
                    'the output lacks its address')
        return 'a pod with Redfish and IPMI, and a Service with its address'

    def switched_on(self, output):
        step.expect('Up/On' in output, 'unexpected output of ipmitool')
        return self.guest.expect_boot('Hdd')

    def listed(self, output):
        step.expect(re.search(rf'(?m)^{NAME} +{NAME} +Off .*OK$', output),
                    'the list has another state')
        return 'the BMC, its VM, which is off, and its health'

    def is_on(self, output):
        step.expect(output.strip() == 'On', 'it is not on')
        self.guest.expect_running()
        return 'it is on, and its guest runs'

    def next_is_pxe(self, output):
        step.expect('pxe' in output, 'the output lacks the boot device')
        self.guest.expect_no_boot()
        return 'the override is set, and the VM was not restarted'

    def boots_pxe(self, output):
        return self.guest.expect_boot('Pxe')

    def logged(self, output):
        step.expect('has powered on' in output, 'the log lacks the start')
        return 'what happened to the VM, also what other clients did'

    def has_certificate(self, output):
        step.expect('BEGIN CERTIFICATE' in self.ca.read_text(),
                    'the file has no certificate')
        return 'clients verify the certificate of the BMC with it'

    def reads(self, output):
        step.expect('"PowerState":"On"' in output.replace(': ', ':'),
                    'Redfish reports another power state')
        return 'Redfish agrees: it is on'

    def deleted(self, output):
        step.expect('deleted' in output, 'unexpected output of kubectl')
        return 'the BMC is deleted'

    def all_gone(self, output):
        step.expect('No resources found' in output, 'objects are left')
        self.guest.expect_running()
        return 'all objects of the BMC are deleted; the VM still runs'

    # Steps

    def setup_steps(self):
        """List the steps that create the BMC and wait until it is ready."""
        return [
            self._kubectl('Install the operator', f'apply -k {MANIFESTS}',
                          self.installed),
            self._kubectl(
                'Wait until the operator has started',
                '--namespace sushy-kubevirt-system rollout status \\\n    '
                '--timeout 60s deployment/sushy-kubevirt-operator',
                self.rolled_out),
            self._kubectl('Create a VM',
                          f'apply -f {MANIFESTS}/samples/vm.yaml',
                          self.has_a_vm),
            self._kubectl('Create a BMC for the VM',
                          f'apply -f {MANIFESTS}/samples/secret.yaml \\\n    '
                          f'-f {MANIFESTS}/samples/bmc.yaml',
                          self.bmc_created),
            self._kubectl('Wait until the BMC is ready',
                          f'wait --for=condition=Ready vmbmc/{NAME} '
                          '--timeout=60s', self.ready),
        ]

    def usage_steps(self):
        """List the steps that use the BMC and finally delete it."""
        shown = self.kubectl(
            f'get pods,services \\\n    --selector {_LABEL}')
        left = self.kubectl(f'get {_KINDS} \\\n    --selector {_LABEL}')
        return [
            self._kubectl('Show the BMC and its objects',
                          f'get vmbmc {NAME}\n{shown}', self.shown),
            self._client('List BMCs with the state of their VMs',
                         self.bmc('list'), self.listed),
            self._client(f'Switch {NAME} on, over IPMI',
                         self.ipmi('power on'), self.switched_on),
            self._client('Read its power state, from outside of the cluster',
                         self.bmc(f'power {NAME}'), self.is_on),
            self._client('Set a one-time boot from the network',
                         self.bmc(f'boot {NAME} pxe'), self.next_is_pxe),
            self._client('Reset it', self.bmc(f'power {NAME} reset'),
                         self.boots_pxe),
            self._client('Show the log of the BMC', self.bmc(f'log {NAME}'),
                         self.logged),
            self._kubectl('Get the CA certificate of the BMC',
                          f"get configmap {NAME}-virtbmc-ca --output \\\n    "
                          f"jsonpath='{{.data.ca\\.crt}}' > {self.ca}",
                          self.has_certificate),
            self._client('Read the system, over Redfish', self.curl,
                         self.reads),
            self._kubectl('Delete the BMC', 'delete vmbmc ' + NAME,
                          self.deleted),
            self._kubectl(
                'Wait until its objects are deleted',
                f'wait --for=delete --timeout=60s \\\n    {_KINDS} '
                f'--selector {_LABEL} > /dev/null\n{left}', self.all_gone),
        ]

    def steps(self):
        """List all steps, in the order they are run."""
        return self.setup_steps() + self.usage_steps()

    def _kubectl(self, title, words, check):
        return step.Step(title, self.kubectl(words), check, needs='kubectl')

    def _client(self, title, command, check):
        # All steps depend on the BMC, which only kubectl can create.
        return step.Step(title, command, check, needs='kubectl')
