# SPDX-License-Identifier: Apache-2.0
"""Quotas of the resources of pods."""

from oslotest import base

from kubevirt_sandbox.api import core
from kubevirt_sandbox.api import errors
from kubevirt_sandbox.api import quotas
from kubevirt_sandbox.testing import server

DEVICE = 'example.test/device'


def pod(name='a', limits=None, **requests):
    return {'metadata': {'name': name, 'namespace': 'default'}, 'spec': {
        'containers': [{'name': 'c', 'image': 'i', 'resources': {
            'requests': requests, 'limits': limits or {}}}]}}


class QuotasTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.server = server.cluster()
        self.store = self.server.store

    def limit(self, **hard):
        self.store.create(quotas.QUOTA, {
            'metadata': {'name': 'q', 'namespace': 'default'},
            'spec': {'hard': hard}})

    def create(self, obj):
        return self.store.create(core.POD, obj)

    def refusal(self, obj):
        refused = self.assertRaises(errors.ApiError, self.create, obj)
        self.assertEqual(403, refused.code)
        return refused.message

    def used(self):
        self.server.settle()
        return self.store.get(quotas.QUOTA, 'default', 'q')['status']['used']

    def test_requests(self):
        self.limit(**{'requests.cpu': '1', 'memory': '1Gi'})
        self.create(pod(cpu='600m', memory='512Mi'))
        self.assertEqual({'requests.cpu': '600m', 'memory': '512Mi'},
                         self.used())
        self.assertEqual(
            'pods "b" is forbidden: exceeded quota: q, requested: '
            'requests.cpu=500m, used: requests.cpu=600m, limited: '
            'requests.cpu=1', self.refusal(pod('b', cpu='0.5', memory='1')))
        self.assertEqual(
            'pods "b" is forbidden: exceeded quota: q, requested: '
            'memory=600Mi, used: memory=512Mi, limited: memory=1Gi',
            self.refusal(pod('b', cpu='0.4', memory='600Mi')))
        self.create(pod('b', cpu='0.4', memory='512Mi'))

    def test_pods_that_ended_use_nothing(self):
        self.limit(pods='1', **{'requests.cpu': '1'})
        self.create(pod(cpu='1'))
        self.assertIn('pods=1,requests.cpu=1, used',
                      self.refusal(pod('b', cpu='1')))
        self.store.change(
            core.POD, 'default', 'a',
            lambda new: new.update(status={'phase': 'Failed'}),
            subresource='status')
        self.create(pod('b', cpu='1'))

    def test_limits_and_devices(self):
        self.limit(**{'limits.memory': '1Gi', f'requests.{DEVICE}': '1',
                      'hugepages-2Mi': '4Mi'})
        limits = {'memory': '1Gi', DEVICE: '1', 'hugepages-2Mi': '4Mi'}
        self.create(pod(limits=limits))
        self.assertEqual({'limits.memory': '1Gi', f'requests.{DEVICE}': '1',
                          'hugepages-2Mi': '4Mi'}, self.used())
        self.assertIn(
            'requested: hugepages-2Mi=4Mi,limits.memory=1Gi,'
            f'requests.{DEVICE}=1, used:', self.refusal(
                pod('b', limits=limits)))

    def test_containers_must_specify_what_is_limited(self):
        self.limit(**{'cpu': '1', 'limits.memory': '1Gi', 'pods': '9'})
        self.assertEqual(
            'pods "a" is forbidden: failed quota: q: must specify cpu for: c; '
            'limits.memory for: c', self.refusal(pod()))
        self.assertIn('must specify limits.memory for: c',
                      self.refusal(pod(cpu='1', memory='1')))
        self.create(pod(limits={'cpu': '1', 'memory': '1'}))

    def test_pods_that_are_not_objects(self):
        self.limit(pods='1')
        self.assertTrue(self.server.quotas.limits('default', 'pods'))
        self.assertFalse(self.server.quotas.limits('default', 'memory'))
        others = [pod('hidden')]
        self.server.quotas.add_pods(core.POD, lambda namespace: others)
        self.assertIn('exceeded quota: q, requested: pods=1, used: pods=1',
                      self.refusal(pod()))
        others.clear()
        self.server.quotas.check(core.POD, pod('hidden'))
        self.create(pod())
        self.assertRaises(errors.ApiError, self.server.quotas.check,
                          core.POD, pod('hidden'))
