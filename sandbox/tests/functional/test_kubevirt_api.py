# SPDX-License-Identifier: Apache-2.0
"""KubeVirt: reads and writes of its objects through Kubernetes."""

import itertools
import json

import requests

from kubevirt_sandbox.testing import sandbox
from tests.functional import kubevirt

_VMS = sandbox.path('virtualmachines')
_APPLY = 'application/apply-patch+yaml'


class AccessTest(kubevirt.KubeVirtTestCase):

    def _code(self, **headers):
        return requests.get(self.cluster.url + _VMS, headers=headers,
                            verify=False,  # noqa: S501 - refused anyway
                            timeout=30).status_code

    def test_request_without_token(self):
        self.assertIn(self._code(), (401, 403))

    def test_request_with_wrong_token(self):
        self.assertEqual(401, self._code(Authorization='Bearer wrong'))


class AcceptanceTest(kubevirt.KubeVirtTestCase):

    def put(self, name, verb, accept):
        return self.cluster.request(
            'PUT', f'{kubevirt.SUBRESOURCES}/virtualmachines/{name}/{verb}',
            headers={'Accept': accept})

    def test_action_has_no_json_response(self):
        name = self.make()
        refused = self.put(name, 'start', 'application/json')
        self.assertEqual(406, refused.status_code)
        self.assertEqual('text/plain',
                         refused.headers['Content-Type'].split(';')[0])
        self.assertEqual('406: Not Acceptable\n\n'
                         'Available representations: ', refused.text)
        self.assertEqual(202, self.put(
            name, 'start', 'application/json, */*').status_code)

    def test_subresource_with_content_returns_json(self):
        where = (f'{kubevirt.SUBRESOURCES}/virtualmachines/{self.make()}/'
                 'expand-spec')
        for accept, code in (('application/json', 200), ('*/*;q=0.1', 200),
                             ('text/html', 406)):
            self.assertEqual(code, self.cluster.request(
                'GET', where, headers={'Accept': accept}).status_code, accept)


class WritesTest(kubevirt.KubeVirtTestCase):

    def make_quiet(self):
        """Create a VM and wait until its controller has updated it."""
        name = self.make()
        self.wait_word(name, 'Stopped')
        return name

    def _annotate(self, name, **annotations):
        return self.cluster.patch('virtualmachines', name, {
            'metadata': {'annotations': annotations}})

    def test_update_of_old_version_conflicts(self):
        name = self.make_quiet()
        old = self.cluster.vm(name)
        self._annotate(name, one='1')
        # The controller may add its annotations later.
        old['metadata'].setdefault('annotations', {})['one'] = '2'
        response = self.cluster.request(
            'PUT', sandbox.path('virtualmachines', name), old, expect=409)
        self.assertEqual('Conflict', response.json()['reason'])

    def test_patch_of_old_version_conflicts(self):
        name = self.make_quiet()
        self.patch_fails(name, {'metadata': {
            'resourceVersion': '1', 'annotations': {'one': '1'}}}, 409)

    def test_failed_test_rejects_json_patch(self):
        self.patch_fails(self.make(), [
            {'op': 'test', 'path': '/spec/runStrategy', 'value': 'Always'},
            {'op': 'remove', 'path': '/spec/runStrategy'}], 422)

    def test_null_in_merge_patch_removes_field(self):
        name = self.make()
        self._annotate(name, one='1', two='2')
        annotations = self._annotate(name, one=None)[
            'metadata']['annotations']
        self.assertEqual('2', annotations['two'])
        self.assertNotIn('one', annotations)

    def test_generation_counts_changes_of_spec(self):
        name = self.make_quiet()
        for body, more in (({'metadata': {'labels': {'a': 'b'}}}, 0),
                           ({'spec': {'runStrategy': 'Manual'}}, 1),
                           ({'spec': {'runStrategy': 'Manual'}}, 0)):
            before, after = self._patch_alone(name, body)
            self.assertEqual(before['metadata']['generation'] + more,
                             after['metadata']['generation'])

    def _patch_alone(self, name, body):
        """Patch a VM without a write of its controller in between.

        :returns: the VM before and after
        """
        def patch():
            before = self.cluster.vm(name)
            metadata = {**body.get('metadata', {}), 'resourceVersion':
                        before['metadata']['resourceVersion']}
            response = self.cluster.request(
                'PATCH', sandbox.path('virtualmachines', name),
                {**body, 'metadata': metadata},
                content_type=sandbox.MERGE_PATCH)
            if response.status_code == 409:
                return None
            self.assertEqual(200, response.status_code, response.text)
            return before, response.json()
        return self.until(patch)

    def test_patch_does_not_change_status(self):
        name = self.make_quiet()
        vm = self.cluster.patch('virtualmachines', name, {
            'status': {'printableStatus': 'Nonsense'}})
        self.assertEqual('Stopped', vm['status']['printableStatus'])

    def test_unknown_fields_are_dropped(self):
        name = self.make_quiet()
        vm = self.cluster.patch('virtualmachines', name, {
            'spec': {'colour': 'blue', 'template': {'spec': {
                'domain': {'colour': 'red'}}}}})
        self.assertNotIn('colour', vm['spec'])
        self.assertNotIn('colour', vm['spec']['template']['spec']['domain'])

    def test_apply_creates_and_owns(self):
        vm = self.describe()
        name = vm['metadata']['name']
        where = sandbox.path('virtualmachines', name)
        made = self.cluster.request(
            'PATCH', where, vm, content_type=_APPLY, expect=201,
            params={'fieldManager': 'tests', 'force': 'true'}).json()
        self.addCleanup(self._remove, name)
        self.assertIn(('tests', 'Apply'), [
            (entry['manager'], entry['operation'])
            for entry in made['metadata']['managedFields']])
        for strategy, manager, code in (('Manual', 'tests', 200),
                                        ('Halted', 'other', 409)):
            vm['spec']['runStrategy'] = strategy
            self.cluster.request(
                'PATCH', where, vm, content_type=_APPLY, expect=code,
                params={'fieldManager': manager})


class ReadsTest(kubevirt.KubeVirtTestCase):

    def _list(self, **query):
        return self.cluster.request('GET', _VMS, params=query,
                                    expect=200).json()

    def test_list_by_label_in_pages(self):
        vms = [self.make() for _ in range(3)]
        for name in vms:
            self.cluster.patch('virtualmachines', name, {
                'metadata': {'labels': {'batch': vms[0]}}})
        query = {'labelSelector': 'batch=' + vms[0], 'limit': 2}
        first = self._list(**query)
        self.assertEqual(2, len(first['items']))
        rest = self._list(**query,
                          **{'continue': first['metadata']['continue']})
        self.assertEqual(sorted(vms), sorted(
            item['metadata']['name']
            for item in first['items'] + rest['items']))

    def test_list_by_name(self):
        names = [self.make(), self.make()]
        found = self._list(fieldSelector='metadata.name=' + names[1])
        self.assertEqual(names[1:], [
            item['metadata']['name'] for item in found['items']])

    def _watch(self, **query):
        events = []
        with self.cluster.request('GET', _VMS, stream=True, params={
                'watch': 'true', 'timeoutSeconds': 2, **query}) as response:
            if response.status_code != 200:
                return [{'object': response.json()}]
            for line in response.iter_lines(chunk_size=2 ** 16):
                if line:
                    events.append(json.loads(line))
        return events

    def test_watch_sends_all_changes_since_version(self):
        name = self.make()
        self.wait_word(name, 'Stopped')
        only = {'fieldSelector': 'metadata.name=' + name}
        version = self._list(**only)['metadata']['resourceVersion']
        for number in ('1', '2'):
            self.cluster.patch('virtualmachines', name, {
                'metadata': {'annotations': {'n': number}}})
        events = [event for event in self._watch(
            resourceVersion=version, **only) if event['type'] != 'BOOKMARK']
        self.assertEqual({'MODIFIED'}, {event['type'] for event in events})
        # The controller may write the VM before, between and after.
        seen = [event['object']['metadata'].get('annotations', {}).get('n')
                for event in events]
        self.assertEqual(['1', '2'], [
            n for n, _ in itertools.groupby(filter(None, seen))])

    def test_watch_from_old_version_expires(self):
        first = self._watch(resourceVersion='1')[0]['object']
        self.assertEqual((410, 'Expired'), (first['code'], first['reason']))

    def test_discovery(self):
        def names(where, key):
            return {one['name'] for one in self.cluster.request(
                'GET', where, expect=200).json()[key]}
        self.assertLessEqual(
            {'kubevirt.io', 'subresources.kubevirt.io',
             'apiextensions.k8s.io'}, names('/apis', 'groups'))
        self.assertLessEqual(
            {'virtualmachines', 'virtualmachines/status', 'kubevirts',
             'virtualmachineinstances'},
            names('/apis/kubevirt.io/v1', 'resources'))
        self.assertLessEqual(
            {'virtualmachines/start', 'virtualmachines/stop',
             'virtualmachineinstances/pause'},
            names('/apis/subresources.kubevirt.io/v1', 'resources'))

    def test_older_api_version(self):
        name = self.make()
        where = sandbox.path('virtualmachines', name).replace(
            '/v1/', '/v1alpha3/')
        vm = self.cluster.request('PATCH', where, {
            'spec': {'runStrategy': 'Manual'}}, expect=200,
            content_type=sandbox.MERGE_PATCH).json()
        self.assertEqual('kubevirt.io/v1alpha3', vm['apiVersion'])
        vm = self.cluster.vm(name)
        self.assertEqual(('kubevirt.io/v1', 'Manual'), (
            vm['apiVersion'], vm['spec']['runStrategy']))

    def test_feature_gates_and_version(self):
        installed = self.cluster.list('kubevirts', namespace=None)[0]
        gates = installed['spec']['configuration']['developerConfiguration']
        self.assertLessEqual({'RebootPolicy', 'DeclarativeHotplugVolumes'},
                             set(gates['featureGates']))
        version = self.cluster.request(
            'GET', '/apis/subresources.kubevirt.io/v1/version',
            expect=200).json()
        self.assertEqual(installed['status']['observedKubeVirtVersion'],
                         version['gitVersion'])
