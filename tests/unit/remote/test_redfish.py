# SPDX-License-Identifier: Apache-2.0
"""What users are told of a BMC's responses, and the way to its pod."""

import json
import socket
import threading
import types

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.remote import endpoint
from sushy_kubevirt.remote import forward
from sushy_kubevirt.remote import redfish
from sushy_kubevirt.remote import wording


class MessageTestCase(base.BaseTestCase):

    def test_extended_messages(self):
        body = {'error': {'message': 'see others', '@Message.ExtendedInfo': [
            {'Message': 'First.'}, {'Message': 'Second.'}]}}
        self.assertEqual('First. Second.',
                         redfish.message(json.dumps(body).encode()))
        del body['error']['@Message.ExtendedInfo']
        self.assertEqual('see others',
                         redfish.message(json.dumps(body).encode()))

    def test_other_bodies(self):
        for body in b'', b'<html>', b'[]', b'{"error": 1}', b'{"error": {}}':
            self.assertEqual('', redfish.message(body))

    def test_bmc_without_redfish(self):
        self.assertRaises(endpoint.BmcUnavailable, redfish.Client,
                          endpoint.Bmc('10.0.0.1', redfish_port=None), None)

    def test_name_of_the_certificate(self):
        for bmc, name in (
                (endpoint.Bmc('10.0.0.1', name='a', namespace='b',
                              http_port=80, redfish_port=None),
                 'a-virtbmc.b.svc'),
                (endpoint.Bmc('bmc.example.com', name='a', namespace='b'),
                 'bmc.example.com')):
            self.assertEqual(name, redfish.Client(bmc, object()).server_name)

    def test_control_characters(self):
        self.assertEqual('a\\x1b[1m\nb',
                         wording.printable_lines('a\x1b[1m\nb'))


class UploadTestCase(base.BaseTestCase):

    def test_storage_that_is_slow(self):
        near, far = socket.socketpair()
        for holder, name, value in (
                (redfish, '_CONNECT_SECONDS', 0.05),
                (forward, 'connect', lambda *_: types.SimpleNamespace(
                    socket=near, error=''))):
            self.useFixture(fixtures.MonkeyPatch(
                f'{holder.__name__}.{name}', value))
        failed, body = threading.Event(), b'x' * 3000000

        def serve():
            # Longer than the handshake may take.
            failed.wait(1)
            with far, far.makefile('rb') as stream:
                while stream.readline().strip():
                    pass
                stream.read(len(body))
                far.sendall(b'HTTP/1.1 204 No Content\r\n\r\n')
        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(near.close)
        self.addCleanup(failed.set)
        client = redfish.Client(endpoint.Bmc(
            '10.0.0.1', name='a', http_port=80, redfish_port=None), object())
        self.assertEqual(204, client.request(
            'POST', '/', body=iter([body]), timeout=60, retries=False,
            headers={'Content-Length': str(len(body))}).status)


class Api:
    """API server with a Service and pods."""

    def __init__(self, target, *pods):
        self.target = target
        self.items = pods

    def get(self, resource, namespace, name):
        if self.target is None:
            raise errors.ObjectNotFound('none')
        return {'spec': {'ports': [{'name': 'ipmi', 'targetPort': 1},
                                   {'name': 'redfish',
                                    'targetPort': self.target}],
                         'selector': {'a': 'b', 'c': 'd'}}}

    def pages(self, resource, namespace, selector):
        self.selector = selector
        yield self.items, ''

    def port_forward(self, *target):
        return target


def pod(name, ready='True', **metadata):
    return {'metadata': {'name': name, **metadata},
            'status': {'conditions': [{'type': 'Ready', 'status': ready}]},
            'spec': {'containers': [{'name': 'other'}, {'ports': [
                {'name': 'redfish', 'containerPort': 8443}]}]}}


class ForwardTestCase(base.BaseTestCase):

    def test_ready_pod(self):
        api = Api('redfish', pod('starting', 'False'),
                  pod('ends', deletionTimestamp='now'), pod('works'))
        self.assertEqual(('space', 'works', 8443),
                         forward.connect(api, 'space', 'node-0'))
        self.assertEqual('a=b,c=d', api.selector)

    def test_slot_of_shared_pod(self):
        self.assertEqual(('space', 'works', 8507), forward.connect(
            Api(8507, pod('works')), 'space', 'node-0'))

    def test_no_way(self):
        for api, text in ((Api(None), 'has no Service'),
                          (Api(1, pod('starting', 'False')),
                           'none of its 1 pods is ready')):
            error = self.assertRaises(endpoint.BmcUnavailable,
                                      forward.connect, api, 'space', 'node-0')
            self.assertIn(text, str(error))
