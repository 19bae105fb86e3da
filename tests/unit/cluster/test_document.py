# SPDX-License-Identifier: Apache-2.0
import textwrap

from oslotest import base

from sushy_kubevirt.cluster import document
from sushy_kubevirt.cluster import problems


def parse(text):
    if isinstance(text, str):
        text = textwrap.dedent(text)
    return document.parse(text, 'c.yaml')


class DocumentTestCase(base.BaseTestCase):

    def refused(self, text):
        """:returns: the message"""
        return str(self.assertRaises(problems.InvalidFile, parse, text))

    def test_values_know_where_they_are(self):
        read = parse('''\
            a:
              b: 1
              c:
              - x
              -   y: [z]
            ''')
        self.assertEqual({'a': {'b': 1, 'c': ['x', {'y': ['z']}]}}, read.value)
        for path, place in (((), 'c.yaml:1:1'), (('a',), 'c.yaml:1:1'),
                            (('a', 'b'), 'c.yaml:2:3'),
                            (('a', 'c', 0), 'c.yaml:4:5'),
                            (('a', 'c', 1, 'y'), 'c.yaml:5:7'),
                            (('a', 'c', 1, 'y', 0), 'c.yaml:5:11'),
                            (('a', 'missing', 'x'), 'c.yaml:1:1')):
            self.assertEqual(place, read.place(path), path)

    def test_scalars(self):
        self.assertEqual(
            {'a': True, 'b': False, 'c': None, 'd': None, 'e': -7, 'f': 1.5,
             'g': '010', 'h': '52:54:00', 'i': '2001-01-01', 'j': '7',
             'k': '1' * 19, 'l': '0x10', 'm': '', 'n': 'line\n'},
            parse('''\
                a: yes
                b: False
                c: ~
                d:
                e: -7
                f: 1.5
                g: 010
                h: 52:54:00
                i: 2001-01-01
                j: "7"
                k: 1111111111111111111
                l: 0x10
                m: ""
                n: |
                  line
                ''').value)

    def test_aliases_and_merge_keys(self):
        read = parse('''\
            base: &base
              vcpus: 1
              memory_mb: 512
            other: &other {memory_mb: 1, x: 2}
            big:
              <<: [*base, *other]
              vcpus: 4
            same: *base
            ''')
        self.assertEqual({'vcpus': 4, 'memory_mb': 512, 'x': 2},
                         read.value['big'])
        self.assertEqual(read.value['base'], read.value['same'])
        self.assertEqual('c.yaml:7:3', read.place(('big', 'vcpus')))
        self.assertEqual('c.yaml:3:3', read.place(('big', 'memory_mb')))

    def test_empty_file(self):
        for text in '', '---\n', '# nothing\n':
            self.assertIsNone(parse(text).value)

    def test_duplicate_keys_are_refused_all_at_once(self):
        self.assertEqual(
            'c.yaml:2:1: "a" is here a second time; the first is in line 1\n'
            'c.yaml:5:3: "c" is here a second time; the first is in line 4',
            self.refused('a: 1\na: 2\nb:\n  c: 1\n  c: 2\n'))

    def test_keys_that_are_not_text_are_refused(self):
        self.assertEqual('c.yaml:1:1: the key 1 is not text; put it in quotes',
                         self.refused('1: a\n'))
        self.assertIn('c.yaml:1:1: the key on is not', self.refused('on: a\n'))

    def test_unquoted_expression_of_ansible_is_refused(self):
        message = self.refused('a: {{ name }}\n')
        self.assertIn('c.yaml:1:5: a key has to be text.', message)
        self.assertIn('expressions of Ansible', message)

    def test_surrogates_are_refused(self):
        """Kubernetes would replace them, and Ironic's database fail."""
        for text in (r'a: "\ud83d"', r'a: ["x\udc00"]', r'"\ud83d": 1',
                     r'a: "\ud83d\ude00"'):
            message = self.refused(text)
            self.assertRegex(message,
                             r'^c\.yaml:1:\d+: the text has a surrogate')
            self.assertTrue(message.isprintable())
        self.assertEqual({'a': '\U0001f600'}, parse(
            r'a: "\U0001f600"').value)

    def test_tags_are_refused(self):
        for tag in '!vault', '!!python/object:os.system', '!!binary', '!!set':
            self.assertIn(f'c.yaml:1:4: the tag {tag} is not understood',
                          self.refused(f'a: {tag} {{}}\n'))
        self.assertIn('the tag !vault', self.refused('a: !vault text\n'))
        self.assertIn('"x" is not of the type int', self.refused('a: !!int x'))

    def test_syntax_errors_have_a_place(self):
        self.assertIn('c.yaml:2:3: not valid YAML: ',
                      self.refused('a: 1\n b: 2\n'))
        self.assertIn('not valid YAML', self.refused(b'a: \xff\xfe\n'))
        self.assertIn('not valid YAML', self.refused('a: 1\n---\nb: 1\n'))
        self.assertIn('not valid YAML', self.refused('a: *unknown\n'))

    def test_expansion_of_aliases_is_limited(self):
        lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]']
        for index in range(1, 12):
            aliases = ', '.join([f'*a{index - 1}'] * 10)
            lines.append(f'a{index}: &a{index} [{aliases}]')
        self.assertIn('more than 100000 values',
                      self.refused('\n'.join(lines)))

    def test_expansion_of_merge_keys_is_limited(self):
        lines = ['a0: &a0 {x: 1, y: 2}']
        for index in range(1, 30):
            aliases = ', '.join([f'*a{index - 1}'] * 10)
            lines.append(f'a{index}: &a{index} {{<<: [{aliases}]}}')
        self.assertIn('more than 100000 values',
                      self.refused('\n'.join(lines)))

    def test_nesting_is_limited(self):
        for depth in 50, 5000:
            self.assertIn('nested', self.refused('[' * depth + ']' * depth))
        self.assertIn('contain themselves', self.refused('a: &a [*a]\n'))

    def test_files(self):
        path = self.create_tempfiles([('c', 'a: 1\n')], ext='.yaml')[0]
        self.assertEqual({'a': 1}, document.read(path).value)
        self.assertEqual(f'{path}:1:1', document.read(path).place(('a',)))
        large = self.create_tempfiles(
            [('large', '#' * (document.MAX_SIZE + 1))], ext='.yaml')[0]
        for one, text in ((large, 'more than 1048576 bytes'),
                          (path + '.none', 'No such file or directory'),
                          ('/', 'Is a directory')):
            error = self.assertRaises(problems.InvalidFile, document.read, one)
            self.assertIn(text, str(error))
            self.assertIn(one, str(error))
