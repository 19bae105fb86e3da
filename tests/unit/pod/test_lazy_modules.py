# SPDX-License-Identifier: Apache-2.0
import importlib
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import threading

from oslotest import base

from sushy_kubevirt.pod import lazy_modules
from sushy_kubevirt.pod import rare_modules


class LazyModulesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        before = list(sys.meta_path), set(sys.modules)
        self.addCleanup(self.restore_modules, *before)

    def restore_modules(self, finders, names):
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
        """Return how often ``sample`` was loaded; it counts in a file."""
        try:
            return (self.folder / 'loads').read_text().count('x')
        except FileNotFoundError:
            return 0

    def sample(self, text='value = 7\n'):
        self.write('sample.py', (
            f"with open({str(self.folder / 'loads')!r}, 'a') as stream:\n"
            "    stream.write('x')\n") + text)
        lazy_modules.load('sample')

    def test_loads_module_at_first_use(self):
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

    def test_from_import_loads_module(self):
        self.sample()
        names = {}
        exec('from sample import value', names)
        self.assertEqual(7, names['value'])

    def test_missing_attribute_raises_attribute_error(self):
        self.sample()
        sample = importlib.import_module('sample')
        self.assertFalse(hasattr(sample, 'nothing'))
        self.assertRaises(AttributeError, getattr, sample, 'nothing')
        self.assertEqual(1, self.loads())

    def test_missing_module_raises_module_not_found_error(self):
        lazy_modules.load('sample_none')
        self.assertRaises(ModuleNotFoundError, importlib.import_module,
                          'sample_none')

    def test_retries_failed_import(self):
        self.sample('import sample_none\nvalue = 7\n')
        sample = importlib.import_module('sample')
        self.assertRaises(ModuleNotFoundError, getattr, sample, 'value')
        self.write('sample_none.py', '')
        self.assertEqual(7, sample.value)

    def test_submodule_loads_its_lazy_package(self):
        self.write('sample_package/__init__.py', 'first = 1\n')
        self.write('sample_package/below.py', """
            import sample_package
            # vars() does not call the package's __getattr__.
            assert 'first' in vars(sample_package)
            second = 2
            """)
        lazy_modules.load('sample_package')
        below = importlib.import_module('sample_package.below')
        self.assertEqual(2, below.second)

    def test_lazy_submodule(self):
        self.write('sample_package/__init__.py', 'first = 1\n')
        self.write('sample_package/below.py', 'second = 2\n')
        lazy_modules.load('sample_package.below')
        below = importlib.import_module('sample_package.below')
        self.assertNotIn('second', vars(below))
        self.assertEqual(2, below.second)

    def test_keeps_getattr_of_module(self):
        self.sample('def __getattr__(name):\n    return name.upper()\n')
        sample = importlib.import_module('sample')
        self.assertEqual('X', sample.x)
        self.assertEqual('Y', sample.y)
        self.assertEqual(1, self.loads())

    def test_concurrent_uses_load_once(self):
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

    def test_module_can_import_itself_while_loading(self):
        self.sample('import sample\nseen = hasattr(sample, "later")\n'
                    'later = 1\n')
        sample = importlib.import_module('sample')
        self.assertFalse(sample.seen)


class RareModulesTestCase(base.BaseTestCase):

    def test_rare_modules_stay_unloaded_in_emulator(self):
        # An outdated list causes no error, but costs memory.
        code = textwrap.dedent("""
            from sushy_kubevirt.pod import lazy_modules
            from sushy_kubevirt.pod import rare_modules
            lazy_modules.load(*rare_modules.RARE)
            from sushy_tools.emulator import main
            import sys
            loaded = [name for name in rare_modules.RARE if name in sys.modules
                      and not lazy_modules._is_deferred(sys.modules[name])]
            print(' '.join(loaded))
            # They can be used, as upstream's selection of a driver does.
            assert main.novadriver.is_loaded and main.ironicdriver.is_loaded
            assert main.novadriver.openstack.connection.Connection
            assert main.fakedriver.FakeDriver.initialize
            """)
        done = subprocess.run([sys.executable, '-c', code], text=True,
                              capture_output=True, timeout=60)
        self.assertEqual('', done.stderr)
        # Not shutil: some releases of tempfile use it during import.
        expensive = {'libvirt', 'openstack', 'requests', 'webob', 'argparse',
                     'html'}
        self.assertEqual(set(), expensive & set(done.stdout.split()))

    def test_rare_modules_are_not_of_this_project(self):
        self.assertEqual([], [name for name in rare_modules.RARE
                              if name.startswith('sushy_kubevirt')])
