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

    def test_functions_of_loading_module_wait_for_their_globals(self):
        self.sample("""
import threading
loading, used = threading.Event(), threading.Event()
def function():
    return value
loading.set()
used.wait(0.2)
value = 7
""")
        sample = importlib.import_module('sample')
        loader = threading.Thread(target=lambda: sample.value)
        loader.start()
        self.addCleanup(loader.join)
        while 'function' not in vars(sample):
            pass
        vars(sample)['loading'].wait()
        self.assertEqual(7, sample.function())

    def test_failed_import_leaves_no_attributes(self):
        self.sample('def function():\n    return value\n'
                    'import sample_none\nvalue = 7\n')
        sample = importlib.import_module('sample')
        self.assertRaises(ModuleNotFoundError, getattr, sample, 'value')
        self.assertRaises(ModuleNotFoundError, getattr, sample, 'function')
        self.write('sample_none.py', '')
        self.assertEqual(7, sample.function())

    def test_module_can_import_itself_while_loading(self):
        self.sample('import sample\nseen = hasattr(sample, "later")\n'
                    'later = 1\n')
        sample = importlib.import_module('sample')
        self.assertFalse(sample.seen)

    def test_names_of_unloaded_module(self):
        self.sample("""
class Base:
    value = 5
def double(number):
    return 2 * number
other = 3
""")
        lazy_modules.load(names={'sample': ('Base', 'double')})
        names = {}
        exec('from sample import Base, double', names)
        self.assertEqual(0, self.loads())
        self.assertEqual(14, names['double'](7))
        self.assertEqual(1, self.loads())
        self.assertEqual(5, names['Base'].value)

        class Derived(names['Base']):
            pass

        self.assertEqual(5, Derived.value)
        self.assertTrue(issubclass(Derived, names['Base']))
        self.assertIsInstance(Derived(), names['Base'])
        self.assertNotIsInstance(Derived, names['Base'])
        # The loaded module gives the function itself.
        exec('from sample import double, Base', names)
        self.assertIs(sys.modules['sample'].double, names['double'])
        self.assertIs(Derived.__bases__[0], names['Base'])

    def test_other_names_load_module(self):
        self.sample('used = 1\nvalue = 7\n')
        lazy_modules.load(names={'sample': ('value',)})
        names = {}
        exec('from sample import used', names)
        self.assertEqual((1, 1), (names['used'], self.loads()))

    def test_modules_of_packages(self):
        self.write('sample_package/__init__.py', 'value = 1\n')
        self.write('sample_package/sub/__init__.py', 'value = 2\n')
        self.write('sample_package/sub/used.py', 'value = 3\n')
        self.write('sample_package/broken.py', 'raise RuntimeError\n')
        self.write('sample_package_2.py', 'value = 4\n')
        lazy_modules.load(packages=('sample_package',))
        names = {}
        exec('from sample_package import broken\n'
             'from sample_package.sub import used\n'
             'import sample_package_2\n', names)
        self.assertEqual(2, sys.modules['sample_package.sub'].value)
        self.assertTrue(lazy_modules._is_deferred(names['used']))
        self.assertFalse(lazy_modules._is_deferred(names['sample_package_2']))
        self.assertEqual(3, names['used'].value)
        self.assertRaises(RuntimeError, getattr, names['broken'], 'value')
        self.assertRaises(ImportError, exec,
                          'from sample_package import missing')


class RareModulesTestCase(base.BaseTestCase):

    def test_rare_modules_stay_unloaded_in_emulator(self):
        # An outdated list causes no error, but costs memory.
        code = textwrap.dedent("""
            import sys
            from sushy_kubevirt.pod import lazy_modules
            from sushy_kubevirt.pod import rare_modules
            rare_modules.defer()
            from sushy_kubevirt.pod import http_server
            http_server.Server
            from sushy_tools.emulator import main
            names = [*rare_modules.RARE, *rare_modules.NAMES]
            print(' '.join(name for name in names if name in sys.modules
                  and not lazy_modules._is_deferred(sys.modules[name])))
            # They can be used, as upstream's selection of a driver does.
            assert main.novadriver.is_loaded and main.ironicdriver.is_loaded
            assert main.novadriver.openstack.connection.Connection
            assert main.fakedriver.FakeDriver.initialize
            import flask
            with main.app.app_context():
                assert 'a b' == flask.render_template_string(
                    'a {{ x }}', x='b')
            """)
        # Not by -c, for which CPython 3.13 itself loads linecache.
        done = subprocess.run([sys.executable], input=code, text=True,
                              capture_output=True, timeout=60)
        self.assertEqual('', done.stderr)
        # Some releases of tempfile use shutil during import. The others are
        # loaded by Redfish, and not by IPMI before its first answer.
        self.assertEqual(set(), set(done.stdout.split()) - {
            'shutil', 'ssl', 'uuid'})
