# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from kubevirt_sandbox.cdi import admission


class UrlTest(base.BaseTestCase):

    def test_accepts_urls(self):
        for url in ('http://a/b', 'HTTPS://A:443/b?c=%zz', 'http://u:p@a/b',
                    'http://[::1]:80/', 'gs://bucket/image', 'http://a',
                    'http:///no-host', 'http://a:/'):
            self.assertEqual('', admission.url_fault(url), url)

    def test_rejects_urls(self):
        for url, why in (
                ('', 'source URL is empty'), ('a', 'Invalid source URL: '),
                ('a/b', 'Invalid source URL: '),
                ('http://a b/', 'Invalid source URL: '),
                ('http://a/%zz', 'Invalid source URL: '),
                ('http://a/\n', 'Invalid source URL: '),
                ('http://a:b/', 'Invalid source URL: '),
                ('http://[::1/', 'Invalid source URL: '),
                ('/a', 'Invalid source URL scheme: '),
                ('file:///etc/passwd', 'Invalid source URL scheme: '),
                ('ftp://a/b', 'Invalid source URL scheme: ')):
            fault = admission.url_fault(url)
            self.assertTrue(fault.startswith(why), (url, fault))
            self.assertTrue(fault.endswith(url) or not url)
