# SPDX-License-Identifier: Apache-2.0
"""Permissions of the account of a BMC pod.

The account has no permission that the pod does not need, and its write
access cannot be used to gain any other.
"""

import json

import yaml

from kubevirt_sandbox.testing import machines
from kubevirt_sandbox.testing import webserver
from sushy_kubevirt.kube import connection
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine import boot
from sushy_kubevirt.machine import cluster
from sushy_kubevirt.machine import media
from sushy_kubevirt.machine import options
from sushy_kubevirt.machine import power_restore_policy
from sushy_kubevirt.machine import power_state
from tests.fixtures import access_case
from tests.fixtures import image_server
from tests.fixtures import operator
from tests.fixtures import sandbox

R = power_state.ResetType

# Permissions that a Role cannot limit to names (see `rbac`).
UNNAMED = {('create', 'events'), ('list', 'events'),
           ('create', 'uploadtokenrequests.upload.cdi.kubevirt.io')}

# Of a VMI: namespace, name, subresource.
SUBRESOURCE = ('/apis/subresources.kubevirt.io/v1/namespaces/{}/'
               'virtualmachineinstances/{}/{}')


class PodAccountTestCase(access_case.AccessTestCase):
    """The account of a BMC's pod; the operator has CDI's upload proxy."""

    RUNS = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = cls.share(image_server.ImageServer())
        url, cls.proxy_ca = cls.sandbox.upload_proxy()
        cls.operator = cls.share(operator.Operator(cls.account, (
            '--upload-proxy-url', url, '--upload-proxy-ca', cls.proxy_ca)))

    def user_of(self, name):
        return f'system:serviceaccount:{self.namespace}:{name}'

    def ask(self, bmc, method, path, body=None, content='application/json'):
        """Send a request with the token of a BMC's pod."""
        config = yaml.safe_load(self.sandbox.account(
            bmc.base, self.namespace).read_text())
        return self.sandbox.request(
            method, path, headers={
                'Authorization': 'Bearer ' + config['users'][0]['user'][
                    'token'], 'Content-Type': content},
            data=None if body is None else json.dumps(body))

    def machine_of(self, bmc):
        """Return the handle of a BMC with the account of the BMC's pod."""
        made = cluster.Cluster(
            connection.Connection.from_options(str(
                self.sandbox.account(bmc.base, self.namespace))),
            vm=f'{self.namespace}/{bmc.name}',
            options=options.Options(
                gates_seconds=0, media=options.MediaOptions(
                    allow_loopback=True)))
        self.addCleanup(made.close)
        made.wait_ready()
        return made.machine(f'{self.namespace}/{bmc.name}')

    def exercise_bmc(self, box):
        """Use every function of a BMC."""
        box.works()
        box.ipmi('power', 'on')
        self.sandbox.wait_running('box', self.namespace)
        self.use_services(box, self.system(box))
        machine = self.machine_of(box)
        self.use_console(box)
        for reset in (R.PAUSE, R.RESUME):
            machine.reset(reset)
        self.boot_once(machine)
        # KubeVirt counts the end of a VMI before it runs as a failed start.
        self.sandbox.wait_running('box', self.namespace)
        machine.reset(R.FORCE_OFF)
        self.sandbox.wait_stopped('box', self.namespace)
        self.change_settings(machine)
        self.use_media(box, machine)
        self.use_rare_functions(machine)

    def boot_once(self, machine):
        """Boot once from the network, and wait for observedGeneration."""
        machine.set_boot(boot.Target.PXE, boot.Enabled.ONCE)
        machine.reset(R.FORCE_RESTART)

        def observed():
            vm = self.sandbox.vm('box', self.namespace)
            return (stored_names.BOOT not in vm['metadata']['annotations']
                    and vm['status'].get('observedGeneration')
                    == vm['metadata']['generation'])

        self.until('observed generation', observed, True)

    def change_settings(self, machine):
        """Change everything of the VM that a BMC changes."""
        machine.set_boot(mode=boot.Mode.UEFI)
        for enabled in (True, False):
            machine.set_secure_boot(enabled)
        machine.set_boot(mode=boot.Mode.LEGACY)
        machine.set_boot(boot.Target.PXE, boot.Enabled.CONTINUOUS)
        machine.set_boot(enabled=boot.Enabled.DISABLED)
        machine.set_boot(order=machine.boot_order()[::-1])
        machine.set_default_boot_order()
        machine.set_attributes({'ProcTurbo': 'Enabled'})
        machine.set_asset_tag('rack 1')
        machine.set_controller_name('bmc-1')
        for state in ('Lit', 'Off'):
            machine.set_indicator(state)
        # The last one leaves no run strategy to restore.
        for policy in reversed(power_restore_policy.Policy):
            machine.set_power_restore_policy(policy)
        for device in ('Cd', 'USBStick'):
            for name in ('a.iso', 'b.iso'):
                machine.insert_media(device, media.Source(
                    self.images.url + '/' + name), wait=True)
            machine.eject_media(device)
        machine.set_boot(boot.Target.UEFI_HTTP, boot.Enabled.ONCE,
                         boot.Mode.UEFI, self.images.url + '/a.iso')
        machine.set_boot(enabled=boot.Enabled.DISABLED, mode=boot.Mode.LEGACY)

    def use_console(self, box):
        """Request the serial console and the display, without WebSocket.

        The sandbox has no display.
        """
        for name, status in (('console', 400), ('vnc', 501)):
            answer = self.ask(box, 'GET', SUBRESOURCE.format(
                self.namespace, 'box', name))
            self.assertEqual(status, answer.status_code, answer.text)

    def post(self, box, path, **body):
        answer = box.curl(path, '-X', 'POST', '-H', 'Content-Type: '
                          'application/json', '-d', json.dumps(body))
        self.assertLess(answer.code, 300, answer.text)

    def use_services(self, box, system):
        """Change the state of the services, and clear the system's log."""
        self.assertLess(box.curl(
            '/redfish/v1/EventService', '-X', 'PATCH', '-H', 'Content-Type: '
            'application/json', '-d', '{"DeliveryRetryAttempts": 4}').code,
            300)
        log = system + '/LogServices/Events'
        # The last two entries of a start; either may come first.
        for text in 'ResourcePoweredOn', 'VirtualMachineInstance started':
            self.until('log', lambda text=text: text in box.curl(
                log + '/Entries').text)
        self.post(box, log + '/Actions/LogService.ClearLog')
        self.until('SEL', lambda: 'no entries' in box.ipmi('sel', 'list'),
                   True)
        box.ipmi('raw', *'4 2 4 7 1 0x6f 1 0 0'.split())
        self.assertIn('Thermal Trip', box.ipmi('sel', 'list'))
        box.ipmi('sel', 'clear')

    def use_media(self, box, machine):
        machine.insert_media('Cd', media.Source(
            self.images.url + '/private/a.iso',
            username=self.images.USER, password=self.images.PASSWORD),
            wait=True)
        machine.eject_media('Cd')
        made = [machine.add_media_certificate('Cd', ca.read_text())
                for ca in (self.proxy_ca, box.ca_file())]
        # A new process has an empty cache, as after a start.
        self.assertEqual(2, len(self.machine_of(box).media_certificates('Cd')))
        for one in made:
            machine.delete_media_certificate('Cd', one.id)
        # The pod itself uploads one.
        device = self.system(box) + '/VirtualMedia/Cd'
        images = self.useFixture(image_server.ImageServer(self.host_address))
        self.post(box, device + '/Actions/VirtualMedia.InsertMedia',
                  Image=images.url + '/b.iso', TransferMethod='Upload')
        self.until('upload', lambda: [
            (set(one['spec']['source']), one.get('status', {}).get('phase'))
            for one in self.sandbox.list('datavolumes', self.namespace)],
            [({'upload'}, 'Succeeded')])
        self.post(box, device + '/Actions/VirtualMedia.EjectMedia')

    def system(self, box):
        return '/redfish/' + box.url().partition('/redfish/')[2]

    def use_rare_functions(self, machine):
        """Use functions that few VMs need."""
        def patch(name, **spec):
            self.sandbox.patch('virtualmachines', name, {'spec': spec},
                               self.namespace)
        # Power-off cancels the start of a VM that is being restarted.
        patch('box', runStrategy='Always')
        self.sandbox.wait_running('box', self.namespace)
        self.sandbox.do('box', 'restart', namespace=self.namespace)
        machine.reset(R.FORCE_OFF)
        self.sandbox.wait_stopped('box', self.namespace)
        # Power-on of a VM with run strategy Once that has run.
        self.vm('once', 'Once')
        once = self.machine_of(self.bmc('once', 'once', 'once-bmc').ready())
        self.sandbox.wait_running('once', self.namespace)
        self.sandbox.guest_does('once', 'shutdown', self.namespace)
        self.sandbox.wait('virtualmachineinstances', 'once', lambda vmi: (
            vmi and vmi['status']['phase'] == 'Succeeded'), self.namespace)
        once.reset(R.ON)
        self.sandbox.wait_running('once', self.namespace)
        # A VM with an instance type.
        self.sandbox.request(
            'POST', '/apis/instancetype.kubevirt.io/v1beta1/namespaces/'
            f'{self.namespace}/virtualmachineinstancetypes', {
                'apiVersion': 'instancetype.kubevirt.io/v1beta1',
                'kind': 'VirtualMachineInstancetype',
                'metadata': {'name': 'small'}, 'spec': {
                    'cpu': {'guest': 1}, 'memory': {'guest': '2Gi'}}},
            expect=201)
        small = {'kind': 'VirtualMachineInstancetype', 'name': 'small'}
        patch('box', instancetype=small, template={'spec': {'domain': {
            'cpu': None, 'memory': None, 'resources': None}}})
        self.until('sizes', lambda: machine.inventory().memory_bytes, 2 << 30)

    def test_has_only_permissions_it_uses(self):
        self.sandbox.reset_stats()
        self.host_address = webserver.own_address()
        if self.host_address is None:
            self.skipTest('this host has loopback only, which a BMC refuses')
        vm = machines.vm('box', 'Halted', self.namespace)
        vm['spec']['template']['metadata']['annotations'] = {
            'sandbox.sushy-kubevirt/ignore-acpi': 'true'}
        # Remove the medium in the VM's CD-ROM.
        del vm['spec']['template']['spec']['volumes'][1]
        self.sandbox.create('virtualmachines', vm, self.namespace)
        box = self.bmc(virtualMedia={
            'allowedHosts': [self.host_address]}).ready()
        self.exercise_bmc(box)
        self.assert_nothing_denied()
        mine = self.can(self.user(box.base))
        # All permissions are limited to this VM.
        unnamed = {what for what, names in mine.items() if not names}
        self.assertEqual(UNNAMED, unnamed)
        for what, names in mine.items():
            self.assertEqual([], [one for one in names if one != 'box'
                                  and not one.startswith('box-bmc-')], what)
        used = self.used(self.user_of(box.base)) | self.used(self.user_of(
            'once-virtbmc'))
        self.assertEqual([], sorted(set(mine) - used))

    def test_cannot_read_foreign_objects(self):
        self.bmc(name='other', vm='other', secret='other-bmc').ready()
        box = self.bmc().ready()
        vms = sandbox.path('virtualmachines', namespace=self.namespace)
        core = f'/api/v1/namespaces/{self.namespace}/'
        cdi = f'/apis/cdi.kubevirt.io/v1beta1/namespaces/{self.namespace}/'
        for path in vms + '/box', core + 'secrets/box-bmc-state':
            self.assertEqual(200, self.ask(box, 'GET', path).status_code)
        for method, path, *body in (
                ('GET', vms + '/other'), ('GET', vms), ('DELETE', vms),
                ('GET', vms + '?watch=true'),
                ('GET', vms.replace('machines', 'machineinstances')),
                ('GET', vms + '?fieldSelector=metadata.name%3Dother'),
                ('GET', '/apis/kubevirt.io/v1/virtualmachines'),
                ('GET', '/apis/bmc.kubevirt.io/v1beta1/namespaces/'
                 f'{self.namespace}/virtualmachinebmcs'),
                ('DELETE', vms + '/box'),
                ('GET', core + 'secrets'),
                ('GET', core + 'secrets/other-bmc-state'),
                ('GET', core + 'secrets/other-virtbmc-tls'),
                ('GET', core + 'secrets/box-bmc'),
                ('GET', core + 'secrets/box-virtbmc-tls'),
                ('GET', f'/api/v1/namespaces/{operator.NAMESPACE}/secrets/'
                 'sushy-kubevirt-ca'),
                ('POST', core + 'secrets', {'metadata': {'name': 'mine'}}),
                ('POST', core + 'configmaps', {'metadata': {'name': 'm'}}),
                ('GET', core + 'configmaps/box-virtbmc'),
                ('GET', core + 'pods'), ('GET', cdi + 'datavolumes'),
                ('POST', cdi + 'datavolumes', {'metadata': {'name': 'm'}}),
                ('POST', core + 'serviceaccounts/box-virtbmc/token', {}),
                ('POST', core + 'serviceaccounts/default/token', {}),
                ('GET', '/apis/rbac.authorization.k8s.io/v1/namespaces/'
                 f'{self.namespace}/roles/box-virtbmc'),
                *(('GET', SUBRESOURCE.format(self.namespace, vmi, name))
                  for vmi, name in (('other', 'console'), ('other', 'vnc'),
                                    ('box', 'vnc/screenshot'),
                                    ('box', 'portforward'),
                                    ('box', 'usbredir'))),
                ('GET', '/sandbox/stats')):
            self.assertEqual(403, self.ask(
                box, method, path, *body).status_code, (method, path))

    def test_writes_cannot_gain_permissions(self):
        """Attacks that RBAC alone would not prevent."""
        box = self.bmc().ready()
        self.kubectl('create', 'secret', 'generic', 'private',
                     '--from-literal=a=b')
        uid = self.sandbox.vm('box', self.namespace)['metadata']['uid']
        vms = sandbox.path('virtualmachines', 'box', self.namespace)

        def attack(plural, obj):
            return self.ask(
                box, 'PATCH', sandbox.path(plural, obj['metadata']['name'],
                                           self.namespace)
                + '?fieldManager=evil', obj, 'application/apply-patch+yaml'
            ).json()['message']

        def patch(*operations, sub=''):
            return self.ask(box, 'PATCH', vms + sub, operations,
                            sandbox.JSON_PATCH).json()['message']

        # Get the token of another account.
        secret = {'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',
                  'metadata': {'name': 'box-bmc-cd-0'}}
        self.assertIn('only Secrets of type', attack('secrets', secret))
        self.assertRegex(attack('secrets', {
            **secret, 'type': 'kubernetes.io/service-account-token',
            'metadata': {'name': 'box-bmc-cd-0', 'annotations': {
                'kubernetes.io/service-account.name': 'default'}}}),
            "Policy 'virtbmc-(metadata|secrets)' .* denied")
        # Have a controller of the cluster act.
        for field, value in (('annotations', {
                'kubernetes.io/service-account.name': 'default'}),
                ('labels', {'argocd.argoproj.io/secret-type': 'cluster'})):
            self.assertIn('its own ' + field, attack('secrets', {
                **secret, 'type': 'sushy-kubevirt.openstack.org/image-server',
                'metadata': {'name': 'box-bmc-cd-0', field: value}}))
        self.assertIn('its own labels', attack('configmaps', {
            'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {
                'name': 'box-bmc-cd-ca', 'labels': {
                    'grafana_dashboard': '1'}}}))
        self.assertIn('only ConfigMaps with certificates', attack(
            'configmaps', {'apiVersion': 'v1', 'kind': 'ConfigMap',
                           'metadata': {'name': 'box-bmc-cd-ca'},
                           'data': {'1.sh': '#!/bin/sh'}}))
        self.assertIn('no finalizers', self.ask(
            box, 'PATCH', sandbox.path('secrets', 'box-bmc-state',
                                       self.namespace),
            [{'op': 'add', 'path': '/metadata/finalizers', 'value': ['a/b']}],
            sandbox.JSON_PATCH).json()['message'])
        # Read a foreign Secret or volume through CDI.
        http = {'url': 'http://evil.test/'}
        volume = {'apiVersion': 'cdi.kubevirt.io/v1beta1',
                  'kind': 'DataVolume', 'metadata': {'name': 'box-bmc-cd-0'}}
        storage = {'resources': {'requests': {'storage': '1Gi'}}}
        for said, source, notes in (
                ('only url, secretRef', {'http': {
                    **http, 'secretExtraHeaders': ['private']}}, {}),
                ("DataVolume's own Secret", {'http': {
                    **http, 'secretRef': 'private'}}, {}),
                ('source http or upload', {'pvc': {
                    'name': 'root', 'namespace': self.namespace}}, {}),
                ('its own annotations', {'http': http}, {
                    'cdi.kubevirt.io/storage.import.secretExtraHeaders.0':
                        'private'})):
            made = json.loads(json.dumps(volume))
            made['metadata']['annotations'] = notes
            made['spec'] = {'source': source, 'storage': storage}
            self.assertIn(said, attack('datavolumes', made))
        # Read it through the guest.
        spec = '/spec/template/spec/'
        volumes, disks = spec + 'volumes/-', spec + 'domain/devices/disks/-'
        for value in ({'secret': {'secretName': 'private'}},
                      {'serviceAccount': {'serviceAccountName': 'default'}},
                      {'persistentVolumeClaim': {'claimName': 'other'}},
                      {'configMap': {'name': 'other'}},
                      {'dataVolume': {'name': 'other-bmc-cd-0'}},
                      {'dataVolume': {'name': 'box-bmc-data'}}):
            self.assertIn('only volumes of its virtual media', patch(
                {'op': 'add', 'path': volumes, 'value': {
                    'name': 'bmc-cd', **value}},
                {'op': 'add', 'path': disks, 'value': {
                    'name': 'bmc-cd', 'cdrom': {}}}))
        self.assertIn('remove dataVolumeTemplates', patch(
            {'op': 'add', 'path': volumes, 'value': {
                'name': 'x', 'dataVolume': {'name': 'box-bmc-x'}}},
            {'op': 'add', 'path': '/spec/dataVolumeTemplates', 'value': [{
                'metadata': {'name': 'box-bmc-x'}, 'spec': {
                    'storage': storage, 'source': {'http': {
                        **http, 'secretExtraHeaders': ['private']}}}}]}))
        notes = '/metadata/annotations/'
        interface = spec + 'domain/devices/interfaces/0/'
        owners = 'labels, finalizers and ownerReferences'
        network = "bootOrder of a guest's interfaces"
        for said, path, value in (
                ('only its own annotations',
                 notes + 'bmc.kubevirt.io~1allow-from', 'evil'),
                # Harvester makes claims of the first and deletes the second.
                *(('only its own annotations', notes + name, '[]')
                  for name in (
                      'harvesterhci.io~1volumeClaimTemplates',
                      'harvesterhci.io~1removedPersistentVolumeClaims')),
                ('boot-once', '/spec/template/metadata/annotations', {
                    'hooks.kubevirt.io/hookSidecars': '[]'}),
                ('boot-once', '/spec/template/metadata/labels', {'a': 'b'}),
                (owners, '/metadata/labels', {'a': 'b'}),
                (owners, '/metadata/finalizers', ['a/b']),
                (owners, '/metadata/ownerReferences', [{
                    'apiVersion': 'v1', 'kind': 'ConfigMap', 'name': 'none',
                    'uid': uid}]),
                (network, interface + 'macAddress', '02:00:00:00:00:01'),
                (network, interface + 'model', 'e1000'),
                ('only bootloader', spec + 'domain/cpu/cores', 4),
                ('only bootloader', spec + 'domain/memory/guest', '2Gi'),
                ('only disks and interfaces',
                 spec + 'domain/devices/autoattachInputDevice', True),
                ('only domain and volumes', spec + 'serviceAccountName',
                 'default'),
                ("bootOrder of a guest's disks",
                 spec + 'domain/devices/disks/0/serial', 'a')):
            self.assertIn(said, patch(
                {'op': 'add', 'path': path, 'value': value}), path)
        self.assertIn('only remove stateChangeRequests', patch({
            'op': 'add', 'path': '/status/volumeRequests', 'value': [{
                'addVolumeOptions': {
                    'name': 'x', 'disk': {'disk': {}}, 'volumeSource': {
                        'persistentVolumeClaim': {
                            'claimName': 'other'}}}}]}, sub='/status'))
        # Write Events about other objects, and delete Events.
        events = sandbox.path('events', namespace=self.namespace)
        found = self.ask(box, 'GET', events).json()['items']
        theirs = next(one for one in found
                      if one['involvedObject']['kind'] == 'Pod')
        about = {'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachine',
                 'namespace': self.namespace, 'name': box.name}
        ours = {'metadata': {'name': 'x'}, 'reason': 'Test',
                'reportingComponent': 'sushy-kubevirt',
                'involvedObject': about}
        for event in ({**theirs, 'metadata': {'name': 'x'}},
                      {**ours, 'reportingComponent': 'kubelet'},
                      {**ours, 'source': {'component': 'kubelet'}},
                      {**ours, 'involvedObject': {**about, 'name': 'other'}}):
            self.assertIn('log of its own VM', self.ask(
                box, 'POST', events, event).json()['message'])
        self.assertEqual(201, self.ask(box, 'POST', events, ours).status_code)
        self.assertIn('cannot delete', self.ask(
            box, 'DELETE', events + '/x').json()['message'])
        self.assertEqual([], [
            one for one in self.kubectl.names('secrets,datavolumes')
            if 'box-bmc-cd' in one])
        # The BMC still works.
        box.works()
