# SPDX-License-Identifier: Apache-2.0
import pathlib

from oslotest import base
import yaml

from sushy_kubevirt.machine.media import media_annotation
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.operator import rbac
from sushy_kubevirt.operator import spec
from tests.unit.operator import bodies

MANIFEST = pathlib.Path(__file__).parents[3] / 'etc/kubernetes/bmc.yaml'

# Permissions that a Role cannot restrict by name, see `rbac`.
WITHOUT_NAMES = {('', 'events', 'create'), ('', 'events', 'list'),
                 ('upload.cdi.kubevirt.io', 'uploadtokenrequests', 'create')}


def grants(rules):
    """Return {(group, resource, verb): set of names, empty for all}."""
    found = {}
    for rule in rules:
        for group in rule['apiGroups']:
            for resource in rule['resources']:
                for verb in rule['verbs']:
                    found.setdefault((group, resource, verb), set()).update(
                        rule.get('resourceNames') or ())
    return found


class RbacTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.grants = grants(rbac.rules(bodies.bmc(), True))

    def test_names_are_those_of_this_vm(self):
        self.assertEqual(WITHOUT_NAMES, {
            grant for grant, names in self.grants.items() if not names})
        for grant, names in self.grants.items():
            for name in names:
                self.assertTrue(name == 'vm' or name.startswith('vm-bmc-'),
                                (grant, name))

    def test_names_of_secrets(self):
        # Only an admission policy prevents that a BMC creates a Secret with
        # the token of any ServiceAccount: see test_admission.
        made = self.grants['', 'secrets', 'create']
        self.assertEqual({slot for device in (
            model.CD, model.USB_STICK, model.HTTP_BOOT)
            for slot in media_annotation.slots('vm', device.id)}, made)
        # The response to a patch contains the whole object.
        for verb in ('get', 'patch'):
            self.assertEqual(made | {'vm-bmc-state'},
                             self.grants['', 'secrets', verb])
        for verb in ('list', 'watch'):
            self.assertEqual({'vm-bmc-state'},
                             self.grants['', 'secrets', verb])
        for verb in ('update', 'delete'):
            self.assertNotIn(('', 'secrets', verb), self.grants)

    def test_rules_equal_those_of_manifest(self):
        documents = list(yaml.safe_load_all(MANIFEST.read_text()))
        role = next(one for one in documents if one['kind'] == 'Role')
        # The same permissions, but server-side apply also needs patch.
        self.assertEqual(
            set(grants(role['rules'])) | {('', 'secrets', 'patch')},
            set(self.grants))

    def test_upload_tokens(self):
        self.assertEqual(
            {('upload.cdi.kubevirt.io', 'uploadtokenrequests', 'create')},
            set(self.grants) - set(grants(rbac.rules(bodies.bmc()))))

    def test_no_media_permissions_without_redfish(self):
        found = grants(rbac.rules(bodies.bmc(redfish={'enabled': False})))
        self.assertEqual({'', 'kubevirt.io', 'subresources.kubevirt.io'},
                         {group for group, resource, verb in found})
        self.assertNotIn(('', 'secrets', 'create'), found)

    def test_certificates_of_users(self):
        def names(body):
            return grants(rbac.rules(spec.read(body)))[
                '', 'configmaps', 'get'] - self.grants['', 'configmaps', 'get']

        given = {'redfish': {'virtualMedia': {'tls': {
            'caBundleConfigMapRef': {'name': 'mine'}}}}}
        self.assertEqual({'mine'}, names(bodies.body(**given)))
        self.assertEqual({'get'}, {
            verb for (group, resource, verb), names in grants(rbac.rules(
                bodies.bmc(**given))).items() if 'mine' in names})
        # That of this name in the VM's namespace is of others.
        self.assertEqual({'vm-bmc-cd-ca', 'vm-bmc-usb-ca', 'vm-bmc-http-ca'},
                         grants(rbac.rules(spec.read(bodies.cross_namespace(
                             **given))))['', 'configmaps', 'get'])
        given['redfish']['enabled'] = False
        self.assertNotIn(('', 'configmaps', 'get'),
                         grants(rbac.rules(bodies.bmc(**given))))

    def test_display(self):
        for given in {'webPage': False}, {'enabled': False}:
            self.assertIn(
                ('subresources.kubevirt.io', 'virtualmachineinstances/vnc',
                 'get'), set(self.grants) - set(grants(
                     rbac.rules(bodies.bmc(redfish=given), True))))

    def test_namespaces_and_subjects(self):
        for body, namespace, name in (
                (bodies.body(), 'lab', 'node-virtbmc'),
                (bodies.cross_namespace(), 'far', 'node-virtbmc-from-lab')):
            bmc = spec.read(body)
            role, binding = rbac.role(bmc), rbac.binding(bmc)
            with self.subTest(namespace=namespace):
                for one in (role, binding):
                    self.assertEqual((namespace, name), (
                        one['metadata']['namespace'],
                        one['metadata']['name']))
                    self.assertEqual(
                        namespace == 'lab',
                        'ownerReferences' in one['metadata'])
                self.assertEqual(name, binding['roleRef']['name'])
                self.assertEqual(
                    [{'kind': 'ServiceAccount', 'name': 'node-virtbmc',
                      'namespace': 'lab'}], binding['subjects'])
        account = rbac.account(spec.read(bodies.cross_namespace()))
        self.assertEqual('lab', account['metadata']['namespace'])

    def test_state_secret_is_owned_by_vm(self):
        made = rbac.state(bodies.vm())
        self.assertEqual(('vm-bmc-state', 'Opaque'),
                         (made['metadata']['name'], made['type']))
        self.assertEqual('u-vm', made['metadata']['ownerReferences'][0][
            'uid'])
