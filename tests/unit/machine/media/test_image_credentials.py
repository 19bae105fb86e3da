# SPDX-License-Identifier: Apache-2.0

import base64
import threading
import types

from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.machine.media import image_credentials
from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine import options

SLOT = 'node-bmc-cd-0'
OTHER = {'metadata': {'name': SLOT}}
VOLUME = {'metadata': {'name': SLOT, 'uid': 'dv-uid'}}
SOURCE = model.Source('u', 'me', 'pass')


class Client:
    """A fake API with Secrets.

    :param secrets: Secrets that exist already
    :param lost: number of creations whose response is lost
    """

    def __init__(self, *secrets, lost=0):
        self.secrets = {one['metadata']['name']: one for one in secrets}
        self.lost = lost
        self.requests = []

    def get(self, resource, namespace, name):
        self.requests.append(('get', name))
        if name not in self.secrets:
            raise errors.ObjectNotFound(name)
        return self.secrets[name]

    def create(self, resource, namespace, body, named=False):
        name = body['metadata']['name']
        self.requests.append(('create', named))
        if name in self.secrets:
            raise errors.Conflict('it has been modified' if named
                                  else f'"{name}" already exists')
        self.secrets[name] = body
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


def secret(attempt='a0', type_=stored_names.IMAGE_SERVER):
    return {'metadata': {'name': SLOT, 'annotations': {
        'sushy-kubevirt.openstack.org/media-attempt': attempt}},
        'type': type_}


class CredentialsTestCase(base.BaseTestCase):

    def create(self, client, vm=('default', 'node'), **fields):
        image_credentials.create(
            machine(client, vm), model.CD, entry(**fields), VOLUME, SOURCE
        )

    def test_secret_is_owned_by_datavolume(self):
        made = image_credentials.body(
            machine(Client()), model.CD, entry(), VOLUME, SOURCE
        )
        self.assertEqual('dv-uid', made['metadata']['ownerReferences'][0][
            'uid'])
        self.assertEqual(
            {'accessKeyId': b'me', 'secretKey': b'pass'},
            {key: base64.b64decode(text)
             for key, text in made['data'].items()})
        self.assertEqual((SLOT, stored_names.IMAGE_SERVER),
                         (made['metadata']['name'], made['type']))
        self.assertNotIn('pass', repr(SOURCE))

    def test_single_vm_scope_uses_fixed_name(self):
        client = Client()
        self.create(client)
        self.assertEqual([('create', True)], client.requests)
        self.assertEqual([SLOT], list(client.secrets))

    def test_other_scopes_use_generated_name(self):
        client = Client()
        self.create(client, None)
        # A BMC has no permission that reads it.
        self.assertEqual([('create', False)], client.requests)
        self.assertEqual([SLOT + '-a1'], list(client.secrets))

    def test_not_created_without_need(self):
        client = Client()
        self.create(client, credentials=False)
        self.create(client, upload=True)
        image_credentials.conflicting(
            machine(client), entry(credentials=False))
        image_credentials.conflicting(machine(client, None), entry())
        self.assertEqual([], client.requests)

    def test_lost_response_is_retried(self):
        for vm in (('default', 'node'), None):
            with self.subTest(vm=vm):
                client = Client(lost=1)
                self.create(client, vm)
                self.assertEqual(2, sum(
                    verb == 'create' for verb, _ in client.requests))

    def test_secret_of_another_insert_is_a_conflict(self):
        client = Client(secret())
        self.assertRaises(errors.Conflict, self.create, client)
        # The Secret is unchanged; the caller retries.
        self.assertEqual(secret(), client.secrets[SLOT])

    def test_retries_after_secret_of_another_insert_is_gone(self):
        client = Client(secret())
        find = client.get

        def get(*place):
            found = find(*place)
            client.secrets.clear()
            return found

        client.get = get
        self.create(client)
        self.assertEqual('a1', client.secrets[SLOT]['metadata'][
            'annotations']['sushy-kubevirt.openstack.org/media-attempt'])

    def test_conflicting(self):
        for secrets, expected in (
                ([], None), ([secret('a1')], None),
                ([secret('a0')], secret('a0')),
                ([OTHER], OTHER)):
            with self.subTest(secrets=secrets):
                self.assertEqual(expected, image_credentials.conflicting(
                    machine(Client(*secrets)), entry()))
