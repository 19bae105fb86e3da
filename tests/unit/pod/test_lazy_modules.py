# SPDX-License-Identifier: Apache-2.0
import importlib
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading

from oslotest import base

from sushy_kubevirt.cmd import redfish
from sushy_kubevirt.pod import lazy_modules


class LaterTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        before = list(sys.meta_path), set(sys.modules)
        self.addCleanup(self._put_back, *before)

    def _put_back(self, finders, names):
        sys.meta_path[:] = finders
        for name in set(sys.modules) - names:
            if name.partition('.')[0].startswith('sample'):
                del sys.modules[name]

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        importlib.invalidate_caches()

    def loads(self):
        """How often ``sample`` was loaded: it writes that down."""
        try:
            return (self.folder / 'loads').read_text().count('x')
        except FileNotFoundError:
            return 0

    def sample(self, text='value = 7\n'):
        self.write('sample.py', (
            "with open(%r, 'a') as stream:\n    stream.write('x')\n"
            % str(self.folder / 'loads')) + text)
        lazy_modules.load('sample')

    def test_not_before_it_is_used(self):
        self.sample()
        sample = importlib.import_module('sample')
        again = importlib.import_module('sample')
        self.assertTrue(bool(sample))
        self.assertEqual(str(self.folder / 'sample.py'), sample.__file__)
        self.assertEqual(0, self.loads())
        self.assertEqual(7, sample.value)
        self.assertEqual(7, again.value)
        self.assertEqual(1, self.loads())
        self.assertNotIn('__getattr__', vars(sample))

    def test_from(self):
        self.sample()
        names = {}
        exec('from sample import value', names)
        self.assertEqual(7, names['value'])

    def test_missing_attribute(self):
        self.sample()
        sample = importlib.import_module('sample')
        self.assertFalse(hasattr(sample, 'nothing'))
        self.assertRaises(AttributeError, getattr, sample, 'nothing')
        self.assertEqual(1, self.loads())

    def test_not_installed(self):
        lazy_modules.load('sample_none')
        self.assertRaises(ModuleNotFoundError, importlib.import_module,
                          'sample_none')

    def test_one_that_fails_is_tried_again(self):
        self.sample('import sample_none\nvalue = 7\n')
        sample = importlib.import_module('sample')
        self.assertRaises(ModuleNotFoundError, getattr, sample, 'value')
        self.write('sample_none.py', '')
        self.assertEqual(7, sample.value)

    def test_package_and_what_is_below(self):
        self.write('sample_package/__init__.py', 'first = 1\n')
        self.write('sample_package/below.py', """
            import sample_package
            # Not by way of the package's attributes.
            assert 'first' in vars(sample_package)
            second = 2
            """)
        lazy_modules.load('sample_package')
        below = importlib.import_module('sample_package.below')
        self.assertEqual(2, below.second)

    def test_one_below(self):
        self.write('sample_package/__init__.py', 'first = 1\n')
        self.write('sample_package/below.py', 'second = 2\n')
        lazy_modules.load('sample_package.below')
        below = importlib.import_module('sample_package.below')
        self.assertNotIn('second', vars(below))
        self.assertEqual(2, below.second)

    def test_own_hook(self):
        self.sample('def __getattr__(name):\n    return name.upper()\n')
        sample = importlib.import_module('sample')
        self.assertEqual('X', sample.x)
        self.assertEqual('Y', sample.y)
        self.assertEqual(1, self.loads())

    def test_threads(self):
        self.sample('import time\ntime.sleep(0.05)\nvalue = 7\n')
        sample = importlib.import_module('sample')
        found = []
        threads = [threading.Thread(
            target=lambda: found.append(sample.value)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([7] * 8, found)
        self.assertEqual(1, self.loads())

    def test_uses_itself_while_it_loads(self):
        self.sample('import sample\nseen = hasattr(sample, "later")\n'
                    'later = 1\n')
        sample = importlib.import_module('sample')
        self.assertFalse(sample.seen)


class RareTestCase(base.BaseTestCase):

    def test_upstream_works_and_leaves_them(self):
        # A list that has become wrong is no error, but dear.
        code = textwrap.dedent("""
            from sushy_kubevirt.cmd import redfish
            from sushy_kubevirt.pod import lazy_modules
            lazy_modules.load(*redfish.RARE)
            from sushy_tools.emulator import main
            import sys
            loaded = [name for name in redfish.RARE if name in sys.modules
                      and not lazy_modules._is_deferred(sys.modules[name])]
            print(' '.join(loaded))
            # They are there, as upstream's choice of a driver wants them.
            assert main.novadriver.is_loaded and main.ironicdriver.is_loaded
            assert main.novadriver.openstack.connection.Connection
            assert main.fakedriver.FakeDriver.initialize
            """)
        done = subprocess.run([sys.executable, '-c', code], text=True,
                              capture_output=True, timeout=60)
        self.assertEqual('', done.stderr)
        # Not shutil: some releases of tempfile use it as they load.
        dear = {'libvirt', 'openstack', 'requests', 'webob', 'argparse',
                'html'}
        self.assertEqual(set(), dear & set(done.stdout.split()))

    def test_no_module_of_ours(self):
        self.assertEqual([], [name for name in redfish.RARE
                              if name.startswith('sushy_kubevirt')])
