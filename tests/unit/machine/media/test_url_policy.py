# SPDX-License-Identifier: Apache-2.0
import pathlib
import socket
from unittest import mock

import fixtures
from oslotest import base

from sushy_kubevirt.kube import errors
from sushy_kubevirt.machine.media import model
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.machine import options

#: URLs that are refused with any options, before a name is resolved.
INVALID_URLS = (
    '', 'x', '/etc/passwd', '//host/x', 'file:///etc/passwd', 'ftp://host/x',
    'gopher://host/x', 'nfs://host/x', 'javascript:1', 'http:', 'http://',
    'http:///x', 'http://:80/', 'http://host:0/', 'http://host:99999/',
    'http://host:port/', 'http://ho st/', 'http://host/\r\nX: y',
    'http://host\t/', 'http://a\\@b/', 'http://a..b/', 'http://-a/',
    'http://a-/', 'http://exa%6dple.com/', 'http://[fe80::1%25eth0]/',
    'http://[::1/', 'http://[v1.x]/', 'http://[nonsense]/',
    'http://host/' + 'x' * 5000, 'http://host/\ud800', 'http://\ud800/',
    # Other notations of 127.0.0.1.
    'http://2130706433/', 'http://0x7f000001/', 'http://0x7f.1/',
    'http://0177.0.0.1/', 'http://127.1/', 'http://127.0.0.1./',
    'http://①②⑦.⓪.⓪.①/', 'http://127。0。0。1/')

#: URLs of hosts that are refused by default.
REFUSED_BY_DEFAULT = (
    'http://127.0.0.1/', 'http://127.8.8.8:8080/', 'http://[::1]/',
    'http://[::ffff:127.0.0.1]/', 'http://[::127.0.0.1]/',
    'http://[64:ff9b::127.0.0.1]/', 'http://[64:ff9b:1::7f00:1]/',
    'http://[64:ff9b:1:7f00:0:100:808:808]/',
    'http://[64:ff9b:1:7f:0:1:808:808]/',
    'http://[64:ff9b:1:5:7f:0:108:808]/',
    'http://[2002:7f00:1::1]/', 'http://[::ffff:0:127.0.0.1]/',
    'http://user:secret@127.0.0.1/',
    'http://10.0.0.1:secret@127.0.0.1/',
    'http://169.254.1.1/', 'http://[fe80::1]/', 'https://[febf::1]:8443/',
    'http://[::ffff:169.254.1.1]/')

#: URLs of hosts that no option allows.
ALWAYS_REFUSED = (
    'http://0.0.0.0/', 'http://0.1.2.3/', 'http://[::]/',
    'http://224.0.0.1/', 'http://[ff02::1]/', 'http://255.255.255.255/',
    'http://240.0.0.1/', 'http://[fec0::1]/', 'http://169.254.169.254/',
    'http://[::ffff:169.254.169.254]/', 'http://[2002:a9fe:a9fe::]/',
    'http://[fd00:ec2::254]/', 'http://100.100.100.200/',
    'http://[2001:0:7f00:1::]/', 'http://168.63.129.16/',
    'http://192.0.0.192/')

OPTIONS = options.MediaOptions()
OPEN = options.MediaOptions(allow_loopback=True, allow_link_local=True)


def resolving(canonical='', **names):
    """Resolve these names (_ for .) and no others.

    :param canonical: the name that all of them stand for
    """
    def getaddrinfo(host, port, *_args, **_kwargs):
        found = names.get(host.replace('.', '_'))
        if found is None:
            raise socket.gaierror(-2, 'Name or service not known')
        return [(None, None, 6, canonical, (address, port))
                for address in found]
    return mock.patch('socket.getaddrinfo', getaddrinfo)


class TestParse(base.BaseTestCase):

    def test_invalid_urls_are_refused(self):
        for url in INVALID_URLS:
            error = self.assertRaises(errors.InvalidValue, url_policy.parse,
                                      url)
            self.assertEqual('Image', error.property)
            self.assertLess(len(str(error)), 400, url)

    def test_normalizes_url(self):
        for url, text in (
                ('http://Host/a', 'http://host/a'),
                ('HTTP://host:80/', 'http://host/'),
                ('https://host:443/a?b=c', 'https://host/a?b=c'),
                ('https://host:80/a', 'https://host:80/a'),
                ('http://host', 'http://host/'),
                ('http://host.example./x', 'http://host.example/x'),
                ('http://host/é%2Fx', 'http://host/%C3%A9%2Fx'),
                ('http://host/a#b', 'http://host/a'),
                ('http://bücher.example/', 'http://xn--bcher-kva.example/'),
                ('http://[2001:DB8:0::1]:8080/x',
                 'http://[2001:db8::1]:8080/x'),
                ('http://u:p@host/x', 'http://host/x'),
                ('http://a@b:c@host/x', 'http://host/x')):
            found = url_policy.parse(url)
            self.assertEqual(text, found.text)
            self.assertEqual(text, url_policy.parse(text).text)

    def test_password_is_not_shown(self):
        found = url_policy.parse('http://me:s3cret@host/x?signature=s3cret')
        self.assertEqual(('me', 's3cret'), (found.username, found.password))
        self.assertNotIn('s3cret', found.shown)
        self.assertNotIn("password='", repr(found))
        for url in ('http://me:s3cret@host:99999/', 'x://me:s3cret@host/',
                    'http://me:s3cret@ho st/', 'http://me:s3cret@/',
                    'http://me:s3cret@127.1/', 'me:s3cret@host/x',
                    'http://me:s3cret@h/' + 'x' * 5000):
            error = self.assertRaises(errors.InvalidValue, url_policy.parse,
                                      url)
            self.assertNotIn('s3cret', str(error))
            self.assertNotIn('s3cret', str(error.value))

    def test_reasons(self):
        for url, reason in (
                ('http://127.0.0.1:0/a.iso', 'its port'),
                ('http://h:65536/', 'its port'), ('http://h:-1/', 'its port'),
                ('http://h:x/', 'its port'), ('http://h:1:2/', 'its port'),
                ('http://[::1]:0/', 'its port'),
                ('http:///a', 'no host'), ('http://:80/a', 'no host'),
                ('http://@/a', 'no host'), ('http:/a', 'no host'),
                ('http://[::1/a', 'in brackets'),
                ('http://[fe80::1%25eth0]/a', 'with a zone'),
                ('http://[fe80::1%eth0]/a', 'with a zone'),
                ('http://%ff:x@h/', 'percent-encoding'),
                ('http://h/\ud800', 'not Unicode'),
                ('http://ex%61mple/', 'not a valid host name'),
                ('ftp://h/', 'only http and https'),
                ('h/a.iso', 'only http and https')):
            error = self.assertRaises(errors.InvalidValue, url_policy.parse,
                                      url)
            self.assertIn(reason, str(error), url)
        # An empty port is the scheme's, and user information may be empty.
        for url in 'http://h:/a', 'http://@h/a', 'http://:@h/a':
            self.assertEqual('http://h/a', url_policy.parse(url).text)


class TestSeparateCredentials(base.BaseTestCase):

    def test_moves_credentials_out_of_url(self):
        found = url_policy.separate_credentials(
            model.Source('https://me:a%2Fb@host/x.iso', method='Stream'))
        self.assertEqual(model.Source('https://host/x.iso', 'me', 'a/b',
                                      method='Stream'), found)
        self.assertEqual(found, url_policy.separate_credentials(found))
        self.assertEqual(found, url_policy.separate_credentials(model.Source(
            'https://me:a%2Fb@host/x.iso', 'me', 'a/b', method='Stream')))

    def test_invalid_credentials_are_refused(self):
        for name, source in (
                ('UserName', model.Source('http://me:a@host/', 'me', 'b')),
                ('Password', model.Source('http://host/', 'me')),
                ('UserName', model.Source('http://host/', password='a')),
                ('Password', model.Source('http://me@host/')),
                ('UserName', model.Source('http://host/', 'm:e', 'a')),
                ('UserName', model.Source('http://host/', 'm\re', 'a')),
                ('Password', model.Source('http://host/', 'me', 'a\n')),
                ('Password', model.Source('http://host/', 'me', '\ud800')),
                ('TransferProtocolType',
                 model.Source('http://host/', protocol='HTTPS'))):
            error = self.assertRaises(errors.InvalidValue,
                                      url_policy.separate_credentials, source)
            self.assertEqual(name, error.property)

    def test_matching_protocol_is_accepted(self):
        source = model.Source('http://host/', protocol='HTTP')
        self.assertEqual(source, url_policy.separate_credentials(source))


class TestCheck(base.BaseTestCase):

    def refused(self, url, **more):
        return self.assertRaises(
            errors.InvalidValue, url_policy.check, url,
            options.MediaOptions(**more))

    def test_refused_unless_allowed(self):
        for url in REFUSED_BY_DEFAULT:
            error = self.refused(url)
            self.assertIn('set allow_', str(error), url)
            self.assertNotIn('secret', str(error))
            self.assertEqual(1, len(url_policy.check(url, OPEN)), url)

    def test_always_refused(self):
        for url in ALWAYS_REFUSED:
            self.refused(url)
            self.refused(url, allow_loopback=True, allow_link_local=True,
                         allowed_hosts=('*', '0.0.0.0/0', '::/0'))

    def test_allowed_addresses(self):
        for url, address in (
                ('http://10.0.0.1/', '10.0.0.1'),
                ('http://192.168.1.1/', '192.168.1.1'),
                ('http://8.8.8.8/', '8.8.8.8'),
                ('http://[2001:db8::1]/', '2001:db8::1'),
                ('http://[fd00::1]/', 'fd00::1')):
            self.assertEqual((address,), url_policy.check(url, OPTIONS))

    def test_all_addresses_of_a_name_are_checked(self):
        with resolving(good=['10.0.0.1', '10.0.0.2'],
                       bad=['10.0.0.1', '127.0.0.1'],
                       mapped=['::ffff:127.0.0.1'],
                       metadata=['169.254.169.254'],
                       zone=['fe80::1%2']):
            self.assertEqual(('10.0.0.1', '10.0.0.2'),
                             url_policy.check('http://good/', OPTIONS))
            for name in 'bad', 'mapped', 'metadata', 'zone':
                error = self.refused(f'http://{name}/')
                self.assertIn(f'({name})', str(error))
            error = self.assertRaises(
                errors.MediaUnreachable, url_policy.check, 'http://none/',
                OPTIONS)
            self.assertEqual('unreachable', error.kind)

    def test_allow_list(self):
        allowed = ('images.example.com', '*.Trusted.example', '10.1.0.0/16',
                   '2001:db8::/32', '192.0.2.7')
        with resolving(images_example_com=['203.0.113.1'],
                       a_b_trusted_example=['203.0.113.2'],
                       trusted_example=['203.0.113.3'],
                       nottrusted_example=['203.0.113.4'],
                       inside=['10.1.2.3', '2001:db8::5'],
                       half=['10.1.2.3', '10.2.2.3']):
            for host in ('images.example.com', 'a.b.trusted.example',
                         'inside', '10.1.2.3', '192.0.2.7',
                         '[2001:db8::1]'):
                url_policy.check(f'http://{host}/', options.MediaOptions(
                    allowed_hosts=allowed))
            for host in ('trusted.example', 'nottrusted.example', 'half',
                         '10.2.0.1', '192.0.2.8', '[2001:db9::1]',
                         '[::ffff:10.1.2.3]'):
                error = self.refused(f'http://{host}/',
                                     allowed_hosts=allowed)
                self.assertIn(' is not in allowed_hosts', str(error))

    def test_messages_name_options_that_can_be_set(self):
        names = {'allow_loopback': 'LOOPBACK'}
        for url, text, more in (
                ('http://127.0.0.1/', '; set LOOPBACK to True', {}),
                ('http://169.254.1.1/', ' is a link-local address', {}),
                ('http://192.0.2.1/', ' is not allowed',
                 {'allowed_hosts': ('x',)}),
                ('http://192.0.2.1/', ' is denied',
                 {'denied_hosts': ('192.0.2.0/24',)})):
            error = str(self.refused(url, names=names, **more))
            self.assertIn(text, error)
            self.assertNotIn('_', error)

    def test_allowed_name_may_not_resolve_to_loopback(self):
        with resolving(images=['127.0.0.1']):
            self.refused('http://images/', allowed_hosts=('images',))
            url_policy.check('http://images/', options.MediaOptions(
                allowed_hosts=('images',), allow_loopback=True))

    def test_deny_list(self):
        denied = ('*.svc', 'bad.example', '10.96.0.0/12')
        with resolving(api_default_svc=['203.0.113.1'],
                       bad_example=['203.0.113.1'],
                       sneaky=['203.0.113.1', '10.96.0.1'],
                       fine=['10.1.0.1']):
            for host in ('api.default.svc', 'bad.example', 'BAD.example.',
                         'sneaky', '10.100.0.1', '[::ffff:10.96.0.1]'):
                error = self.refused(f'http://{host}/',
                                     denied_hosts=denied,
                                     allowed_hosts=('*',))
                self.assertIn(' is in denied_hosts', str(error))
            url_policy.check('http://fine/', options.MediaOptions(
                denied_hosts=denied))

    def test_file_of_denied_hosts_is_read_each_time(self):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).join('hosts'))
        given = {'denied_hosts_file': str(path),
                 'denied_hosts': ('192.0.2.9',),
                 'denied_except': ('10.96.0.9',)}
        for text, refused, allowed in (
                ('10.96.0.0/12\n*.svc\n', ('10.96.0.1', 'a.svc'),
                 ('10.96.0.9', '192.0.2.1')),
                ('192.0.2.1:80\n', ('192.0.2.1',), ('10.96.0.1',))):
            path.write_text(text)
            for host in (*refused, '192.0.2.9'):
                self.refused(f'http://{host}/', **given)
            for host in allowed:
                url_policy.check(f'http://{host}/',
                                 options.MediaOptions(**given))
        # Without a list, nothing is allowed.
        for text in 'a/b\n', '\xe9\n', None:
            path.unlink() if text is None else path.write_text(text)
            self.assertRaises(
                errors.ConfigError, url_policy.check, 'http://192.0.2.1/',
                options.MediaOptions(**given))

    def test_one_port_of_an_address_is_denied(self):
        denied = ('192.0.2.1:6443', '[2001:db8::1]:6443')
        for url in ('https://192.0.2.1:6443/', 'https://[2001:db8::1]:6443/',
                    'https://[::ffff:192.0.2.1]:6443/'):
            self.refused(url, denied_hosts=denied)
        for url in ('https://192.0.2.1/', 'http://[2001:db8::1]/',
                    'https://192.0.2.2:6443/'):
            url_policy.check(url, options.MediaOptions(denied_hosts=denied))
        for entry in ('a:80', '192.0.2.1', '192.0.2.0/24', '2001:db8::1',
                      '192.0.2.1:0', '192.0.2.1:65536', '192.0.2.1:x',
                      '[192.0.2.1]:80', '2001:db8::1:', '*'):
            self.assertIsNone(url_policy.address_and_port(entry), entry)

    def test_exceptions_from_denied_hosts(self):
        denied = ('*.svc', '10.96.0.0/12')
        with resolving(ironic_metal3_svc=['10.96.0.9'],
                       other_metal3_svc=['10.96.0.10'],
                       sneaky=['10.96.0.9', '10.96.0.10']):
            for excepted, url, allowed in (
                    ((), 'http://ironic.metal3.svc/', False),
                    (('ironic.metal3.svc',), 'http://ironic.metal3.svc/',
                     True),
                    (('ironic.metal3.svc',), 'http://other.metal3.svc/',
                     False),
                    (('ironic.metal3.svc',), 'http://10.96.0.9/', False),
                    (('10.96.0.9',), 'http://10.96.0.9/', True),
                    (('10.96.0.9',), 'http://sneaky/', False),
                    (('*.metal3.svc',), 'http://other.metal3.svc/', True),
                    (('*',), 'http://10.96.0.10/', True),
                    # Other rules stay.
                    (('*',), 'http://127.0.0.1/', False),
                    (('*',), 'http://169.254.169.254/', False)):
                with self.subTest(excepted=excepted, url=url):
                    given = {'denied_hosts': denied,
                             'denied_except': excepted}
                    if allowed:
                        url_policy.check(url, options.MediaOptions(**given))
                    else:
                        self.refused(url, **given)

    def test_canonical_name_is_denied(self):
        """A short name of a Service without an address of its own."""
        with resolving('db.lab.svc.cluster.local.', db_lab=['10.1.0.1'],
                       alias_example=['10.1.0.1']):
            for host in 'db.lab', 'alias.example':
                error = self.refused(f'http://{host}/',
                                     denied_hosts=('*.cluster.local',))
                self.assertIn('db.lab.svc.cluster.local', str(error))
                url_policy.check(f'http://{host}/', options.MediaOptions(
                    denied_hosts=('*.cluster.local',),
                    denied_except=(host,)))

    def test_is_allowed_name(self):
        def trusted(url, **more):
            return url_policy.is_allowed_name(
                url, options.MediaOptions(**more))
        self.assertFalse(trusted('http://a/'))
        self.assertTrue(trusted('http://a/', allowed_hosts=('a',)))
        self.assertFalse(trusted('http://b/', allowed_hosts=('a',)))
        # What CDI finds for the name may be denied.
        for denied in 'a', 'b', '10.96.0.0/12', '192.0.2.1:6443':
            for excepted, expected in ((), False), (('b',), False), (
                    ('a',), True):
                self.assertEqual(expected, trusted(
                    'http://a/', allowed_hosts=('*',), denied_hosts=(denied,),
                    denied_except=excepted))
        path = self.useFixture(fixtures.TempDir()).join('hosts')
        pathlib.Path(path).write_text('10.96.0.0/12\n')
        self.assertFalse(trusted('http://a/', allowed_hosts=('a',),
                                 denied_hosts_file=path))

    def test_entries_of_allow_list(self):
        for entry in ('', 'a b', '10.0.0.1/8', '10.0.0.0/33', '1.2.3', '*a',
                      'http://a', 'a/b', '::g', '**', '0x7f'):
            self.assertRaises(ValueError, url_policy.network, entry)
        for entry in ('*', '*.a', 'a.b', 'host', 'a.'):
            self.assertIsNone(url_policy.network(entry))
