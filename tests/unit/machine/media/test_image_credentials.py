# SPDX-License-Identifier: Apache-2.0

import base64
import threading
import types

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import image_credentials
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options

SLOT = 'node-bmc-cd-0'
VOLUME = {'metadata': {'name': SLOT, 'uid': 'dv-uid'}}
SOURCE = model.Source('u', 'me', 'pass')


class Client:
    """An API with Secrets; the answers of some creations are lost."""

    def __init__(self, *there, lost=0):
        self.there = {one['metadata']['name']: one for one in there}
        self.lost = lost
        self.asked = []

    def get(self, resource, namespace, name):
        self.asked.append(('get', name))
        if name not in self.there:
            raise errors.ObjectNotFound(name)
        return self.there[name]

    def create(self, resource, namespace, body, named=False):
        name = body['metadata']['name']
        self.asked.append(('create', named))
        if name in self.there:
            raise errors.Conflict('it has been modified' if named
                                  else f'"{name}" already exists')
        self.there[name] = body
        if self.lost:
            self.lost -= 1
            raise errors.ConnectionLost('gone', maybe_done=True)


def machine(client, vm=('default', 'node')):
    return types.SimpleNamespace(
        name='node', namespace='default', uid='vm-uid',
        options=options.Options(write_deadline=0.3),
        cluster=types.SimpleNamespace(
            vm=vm, client=client, closing=threading.Event()))


def entry(id_='a1', **fields):
    return media_annotation.Entry(id_, 'https://h/x.iso', SLOT,
                                  **{'credentials': True, **fields})


def secret(attempt='a0', type_=image_credentials.TYPE):
    return {'metadata': {'name': SLOT, 'annotations': {
        'sushy-kubevirt.openstack.org/media-attempt': attempt}},
        'type': type_}


class CredentialsTestCase(base.BaseTestCase):

    def create(self, client, vm=('default', 'node'), **fields):
        image_credentials.create(
            machine(client, vm), model.CD, entry(**fields), VOLUME, SOURCE
        )

    def test_secret(self):
        made = image_credentials.body(
            machine(Client()), model.CD, entry(), VOLUME, SOURCE
        )
        self.assertEqual('dv-uid', made['metadata']['ownerReferences'][0][
            'uid'])
        self.assertEqual(
            {'accessKeyId': b'me', 'secretKey': b'pass'},
            {key: base64.b64decode(text)
             for key, text in made['data'].items()})
        self.assertEqual((SLOT, image_credentials.TYPE),
                         (made['metadata']['name'], made['type']))
        self.assertNotIn('pass', repr(SOURCE))

    def test_one_vm(self):
        client = Client()
        self.create(client)
        self.assertEqual([('create', True)], client.asked)
        self.assertEqual([SLOT], list(client.there))

    def test_many_vms(self):
        client = Client()
        self.create(client, None)
        # Nothing that a BMC may do reads it.
        self.assertEqual([('create', False)], client.asked)
        self.assertEqual([SLOT + '-a1'], list(client.there))

    def test_none_is_needed(self):
        client = Client()
        self.create(client, credentials=False)
        self.create(client, upload=True)
        image_credentials.check_name(machine(client), entry(credentials=False))
        image_credentials.check_name(machine(client, None), entry())
        self.assertEqual([], client.asked)

    def test_a_lost_answer(self):
        for vm in (('default', 'node'), None):
            with self.subTest(vm=vm):
                client = Client(lost=1)
                self.create(client, vm)
                self.assertEqual(2, sum(
                    what == 'create' for what, _ in client.asked))

    def test_of_another_insert(self):
        client = Client(secret())
        self.assertRaises(errors.Conflict, self.create, client)
        # It is left as it is, and waited for.
        self.assertEqual(secret(), client.there[SLOT])

    def test_of_another_insert_that_goes(self):
        client = Client(secret())
        find = client.get

        def get(*place):
            found = find(*place)
            client.there.clear()
            return found

        client.get = get
        self.create(client)
        self.assertEqual('a1', client.there[SLOT]['metadata'][
            'annotations']['sushy-kubevirt.openstack.org/media-attempt'])

    def test_make_way(self):
        for there, wanted in (
            ([], None),
            ([secret('a1')], None),
            ([secret('a0')], image_credentials.StaleSecret),
            ([secret('a0', 'Opaque')], image_credentials.ForeignSecret),
            ([{'metadata': {'name': SLOT}}], image_credentials.ForeignSecret),
        ):
            with self.subTest(there=there):
                handle = machine(Client(*there))
                if wanted is None:
                    image_credentials.check_name(handle, entry())
                else:
                    self.assertRaises(
                        wanted, image_credentials.check_name, handle, entry()
                    )
