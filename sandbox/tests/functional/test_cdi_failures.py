# SPDX-License-Identifier: Apache-2.0
"""CDI: failed imports; claims: quota, storage classes, races."""

import gzip
import os
import socket
import time

from kubevirt_sandbox.testing import sandbox
from tests.functional import cdi

IMAGE = os.urandom(70000)
TOO_SMALL = 'DataVolume too small to contain image'


class FailureTest(cdi.CdiTestCase):

    PREFIX = 'Unable to connect to http data source: '

    def test_retries_until_image_exists(self):
        name, message = self.wait_failure(self.web.url + '/a.iso')
        self.assertEqual(
            self.PREFIX + 'expected status code 200, got 404. Status: 404 '
            'Not Found', message)
        volume = self.wait_volume(
            name, lambda volume: volume['status'].get('restartCount', 0) > 1)
        self.assertEqual('ImportInProgress', volume['status']['phase'])
        self.assertEqual('False', self.condition(volume, 'Ready')['status'])
        events = self.events(name)
        self.assertIn(('Warning', 'Error', message), events)
        self.assertIn(('Warning', 'ErrImportFailed', message), events)
        self.web.put('/a.iso', IMAGE)
        volume = self.wait_phase(name, 'Succeeded')
        self.assertLess(1, volume['status']['restartCount'])

    def test_back_off_doubles(self):
        self.need_sandbox()
        name = self.create_volume(self.web.url + '/a.iso')
        self.wait_volume(name, lambda volume: volume.get('status', {}).get(
            'restartCount', 0) >= 5, 30)
        count = len(self.web.requests)
        # The back-off is 0.05 s, doubled each time; HEAD and GET each.
        self.assertLess(count, 20)

    def test_connection_refused(self):
        with socket.create_server(('127.0.0.1', 0)) as server:
            port = server.getsockname()[1]
        url = f'http://127.0.0.1:{port}/a.iso'
        _, message = self.wait_failure(url)
        self.assertEqual(
            f'{self.PREFIX}HTTP request errored: Get "{url}": dial tcp '
            f'127.0.0.1:{port}: connect: connection refused', message)

    def test_unknown_host(self):
        _, message = self.wait_failure('http://images.invalid/a.iso')
        self.assertIn('dial tcp: lookup images.invalid', message)
        self.assertIn('no such host', message)

    def test_broken_connection(self):
        def half(handler):
            handler.send_response(200)
            handler.send_header('Content-Length', '1000000')
            handler.end_headers()
            if handler.command == 'GET':
                handler.wfile.write(bytes(1000))
                handler.close_connection = True
        _, message = self.wait_failure(self.web.put('/a.iso', half),
                                       reason='ImagePullFailed')
        self.assertIn('unexpected EOF', message)

    def test_image_larger_than_claim(self):
        url = self.web.put('/a.iso', bytes(3 * cdi.MIB))
        name, message = self.wait_failure(url, '2Mi')
        self.assertEqual(TOO_SMALL, message)
        messages = [message for _, reason, message in self.events(name)
                    if reason == 'ErrImportFailed']
        self.assertEqual(
            'Unable to process data: virtual image size 3145728 is larger '
            'than the reported available storage 2097152. A larger PVC is '
            'required', messages[0])
        url = self.web.put('/a.gz', gzip.compress(bytes(3 * cdi.MIB)))
        _, message = self.wait_failure(url, '2Mi')
        self.assertEqual(TOO_SMALL, message)

    def test_invalid_image(self):
        _, message = self.wait_failure(self.web.put('/a.iso', b'hello'))
        self.assertEqual(
            'Unable to process data: Unable to obtain information about '
            'data source: could not process image header: unexpected EOF',
            message)
        _, message = self.wait_failure(
            self.web.put('/b.gz', gzip.compress(os.urandom(9000))[:-2000]),
            reason='ImagePullFailed')
        self.assertIn('unexpected EOF', message)

    def test_deletion_during_import_leaves_no_file(self):
        self.need_sandbox()
        names = [self.create_volume(self.web.put(
            f'/gate/{number}.iso', IMAGE)) for number in range(5)]
        for name in names:
            self.wait_phase(name, 'ImportInProgress')
            self.delete_volume(name)  # while its server is silent
        for name in names:
            self.assertFalse(self.disk(name).parent.exists())


class ClaimTest(cdi.CdiTestCase):

    def test_quota_delays_import(self):
        namespace = 'quota-' + os.urandom(4).hex()
        self.cluster.create('namespaces', {'metadata': {'name': namespace}},
                            namespace=None)
        self.addCleanup(self.cluster.delete, 'namespaces', namespace, None)
        quota = {'metadata': {'name': 'limit'}, 'spec': {'hard': {
            'requests.storage': '10Mi', 'persistentvolumeclaims': '1'}}}
        self.cluster.create('resourcequotas', quota, namespace)
        where = cdi.VOLUMES % namespace
        body = self.volume(self.web.put('/a.iso', IMAGE), '64Mi')
        self.cluster.request('POST', where, body, expect=201)
        name = body['metadata']['name']
        volume = self.cluster.wait(
            'datavolumes', name, lambda volume: self.condition(
                volume, 'Bound').get('reason') == 'ErrExceededQuota',
            namespace)
        self.assertEqual('Pending', volume['status']['phase'])
        message = (f'persistentvolumeclaims "{name}" is forbidden: exceeded '
                   'quota: limit, requested: requests.storage=71135396, '
                   'used: requests.storage=0, limited: '
                   'requests.storage=10Mi')
        for kind in ('Bound', 'Ready'):
            found = self.condition(volume, kind)
            self.assertEqual(('False', 'ErrExceededQuota', message), (
                found['status'], found['reason'], found['message']))
        self.cluster.patch('resourcequotas', 'limit', {'spec': {'hard': {
            'requests.storage': '100Mi'}}}, namespace)
        self.cluster.wait('datavolumes', name, lambda volume: volume[
            'status']['phase'] == 'Succeeded', namespace)
        used = self.cluster.wait('resourcequotas', 'limit', lambda quota:
                                 quota['status']['used'][
                                     'persistentvolumeclaims'] == '1',
                                 namespace)['status']['used']
        self.assertEqual('71135396', used['requests.storage'])
        claim = {'metadata': {'name': 'second'}, 'spec': {
            'accessModes': ['ReadWriteOnce'],
            'resources': {'requests': {'storage': '1Mi'}}}}
        self.assertIn(
            'exceeded quota: limit, requested: persistentvolumeclaims=1, '
            'used: persistentvolumeclaims=1, limited: '
            'persistentvolumeclaims=1', self.call(
                'POST', sandbox.path('persistentvolumeclaims',
                                     namespace=namespace), claim, 403))

    def create_late_binding(self, **more):
        return self.create_volume(
            self.web.put('/a.iso', IMAGE), storage={
                'storageClassName': 'late', 'accessModes': ['ReadWriteOnce'],
                'resources': {'requests': {'storage': '64Mi'}}}, **more)

    def test_wait_for_first_consumer(self):
        self.need_sandbox()
        self.wait_phase(self.create_late_binding(), 'Succeeded')
        name = self.create_late_binding(immediate=False)
        volume = self.wait_phase(name, 'WaitForFirstConsumer')
        bound = self.condition(volume, 'Bound')
        self.assertEqual(
            ('False', 'Pending', f'PVC {name} Pending'),
            (bound['status'], bound['reason'], bound['message']))

        def change(_vm, spec):
            spec['domain']['devices']['disks'].append(
                {'name': 'data', 'disk': {'bus': 'virtio'}})
            spec['volumes'].append(
                {'name': 'data', 'dataVolume': {'name': name}})
        self.make_running(change=change)
        self.assertEqual('Succeeded',
                         self.get_volume(name)['status']['phase'])

    def test_missing_storage_class(self):
        name = self.create_volume(
            self.web.put('/a.iso', IMAGE), storage=None, pvc={
                'storageClassName': 'none', 'accessModes': ['ReadWriteOnce'],
                'resources': {'requests': {'storage': '64Mi'}}})
        volume = self.wait_phase(name, 'Pending')
        self.assertEqual('Pending',
                         self.condition(volume, 'Bound')['reason'])
        self.wait_event(name, ('Warning', 'ProvisioningFailed',
                               'storageclass.storage.k8s.io "none" not found'))

    def wait_event(self, name, event):
        """Wait until an event is about a claim."""
        deadline = time.monotonic() + 20
        while event not in self.events(name):
            self.assertLess(time.monotonic(), deadline, self.events(name))
            time.sleep(0.05)

    def set_default_class(self, value):
        self.cluster.request(
            'PATCH', '/apis/storage.k8s.io/v1/storageclasses/standard',
            {'metadata': {'annotations': {
                'storageclass.kubernetes.io/is-default-class': value}}},
            content_type=sandbox.MERGE_PATCH, expect=200)

    def test_no_default_storage_class(self):
        self.need_sandbox()
        self.addCleanup(self.set_default_class, 'true')
        self.set_default_class('false')
        name = self.create_volume(self.web.put('/a.iso', IMAGE))
        self.wait_event(name, (
            'Normal', 'FailedBinding', 'no persistent volumes available for '
            'this claim and no storage class is set'))
        self.assertEqual('Pending',
                         self.get_volume(name)['status']['phase'])
        self.assertNotIn('storageClassName', self.claim(name)['spec'])
        self.set_default_class('true')
        self.wait_phase(name, 'Succeeded')
        self.assertEqual('standard',
                         self.claim(name)['spec']['storageClassName'])

    def test_access_modes_of_storage_class(self):
        self.need_sandbox()
        where = '/apis/storage.k8s.io/v1/storageclasses'
        self.cluster.request('POST', where, {
            'metadata': {'name': 'shared'},
            'provisioner': 'sandbox.sushy-kubevirt.openstack.org/file',
            'parameters': {'accessModes': 'ReadWriteMany'}}, expect=201)
        self.addCleanup(self.cluster.request, 'DELETE', where + '/shared')
        storage = {'storageClassName': 'shared',
                   'resources': {'requests': {'storage': '64Mi'}}}
        name = self.create_volume(self.web.put('/a.iso', IMAGE), storage={
            **storage, 'accessModes': ['ReadWriteOnce']})
        self.wait_event(name, (
            'Warning', 'ProvisioningFailed', 'failed to provision volume with '
            'StorageClass "shared": rpc error: code = InvalidArgument desc = '
            'volume capabilities not supported: ReadWriteOnce'))
        name = self.create_volume(self.web.put('/b.iso', IMAGE),
                                  storage=storage)
        self.wait_phase(name, 'Succeeded')
        self.assertEqual(['ReadWriteMany'],
                         self.claim(name)['spec']['accessModes'])

    def test_validation_and_defaults_of_claims(self):
        for spec, message in (
                ({}, 'spec.accessModes: Required value: at least 1 access '
                 'mode is required'),
                ({'accessModes': ['ReadWriteOnce']},
                 'spec.resources[storage]: Required value')):
            self.assertIn(message, self.call(
                'POST', sandbox.path('persistentvolumeclaims'),
                {'metadata': {'name': 'no'}, 'spec': spec}, 422))
        name = self.create_volume({'blank': {}})
        self.wait_phase(name, 'Succeeded')
        self.assertIn('spec is immutable after creation', self.call(
            'PATCH', sandbox.path('persistentvolumeclaims', name),
            {'spec': {'accessModes': ['ReadOnlyMany']}}, 422,
            content_type=sandbox.MERGE_PATCH))
        claim = self.claim(name)
        self.assertEqual(('standard', 'Bound', 'Filesystem'), (
            claim['spec']['storageClassName'], claim['status']['phase'],
            claim['spec']['volumeMode']))

    def test_deleted_claim_is_recreated(self):
        name = self.create_volume(self.web.put('/a.iso', IMAGE))
        self.wait_phase(name, 'Succeeded')
        first = self.claim(name)['metadata']['uid']
        self.cluster.delete('persistentvolumeclaims', name)
        self.cluster.wait(
            'persistentvolumeclaims', name, lambda claim: claim
            and claim['metadata']['uid'] != first)
        self.wait_phase(name, 'Succeeded')

    def test_recreated_volume_gets_its_own_image(self):
        bodies = []
        name = 'again-' + os.urandom(4).hex()
        for number in range(10):
            content = IMAGE + b'%d' % number
            bodies.append(content)
            self.create_volume(self.web.put(f'/{number}.iso', content),
                               name=name)
            if number % 3 == 0:
                self.wait_phase(name, 'Succeeded')
            elif number % 3 == 1:
                time.sleep(0.01 * number)
            if number < 9:
                where = cdi.VOLUMES % sandbox.NAMESPACE + '/' + name
                self.cluster.request('DELETE', where, expect=200)
        # Until its own claim exists, the status of a DataVolume may be that
        # of its predecessor.
        uid = self.get_volume(name)['metadata']['uid']
        self.cluster.wait(
            'persistentvolumeclaims', name, lambda claim: claim and claim[
                'metadata']['ownerReferences'][0]['uid'] == uid and claim[
                    'metadata']['annotations'].get(
                        'cdi.kubevirt.io/storage.pod.phase') == 'Succeeded')
        self.wait_phase(name, 'Succeeded')
        if not self.external:
            self.assertTrue(self.disk(name).read_bytes().startswith(
                bodies[-1]))

    def test_namespace_deletion_removes_disks(self):
        namespace = 'gone-' + os.urandom(4).hex()
        self.cluster.create('namespaces', {'metadata': {'name': namespace}},
                            namespace=None)
        self.cluster.request(
            'POST', cdi.VOLUMES % namespace, self.volume(
                self.web.put('/gate/a.iso', IMAGE)), expect=201)
        self.cluster.delete('namespaces', namespace, None)
        self.cluster.wait('namespaces', namespace,
                          lambda found: found is None, None)
        if not self.external:
            # An empty folder may remain.
            self.assertEqual([], list((self.storage / namespace).glob('*')))
