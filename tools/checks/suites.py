# SPDX-License-Identifier: Apache-2.0
"""The suites of ``tools/test``: how each is run and counted.

A suite is a function of a folder for its files. It prints while it runs and
returns a :class:`Result`.
"""

import dataclasses
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

from kubevirt_sandbox.testing import guard
from kubevirt_sandbox.testing import process
from tests.fixtures import checkout
from tests.fixtures import environments
from tests.fixtures import sandbox
from tools.checks import cluster
from tools.checks import interpreters

BIN = process.BIN

#: The sandbox, which is a separate project.
SANDBOX = checkout.ROOT / 'sandbox'

# Timeout of one suite in seconds, far above the expected time.
TIMEOUT = 2 * 60 * 60

# The same for a given cluster, where nothing runs in parallel.
CLUSTER_TIMEOUT = 12 * 60 * 60

# The same for one script of findings/: it takes a minute at most on an idle
# machine, most of it to install packages or to compile.
FINDING_TIMEOUT = 15 * 60

# Matches the sandbox's tests that check what Kubernetes, KubeVirt and CDI do.
API_TESTS = r'\.test_(kubernetes|kubevirt|cdi)_'

# Matches the names of test modules whose guests run in QEMU.
QEMU_TESTS = r'\.test_qemu_'

#: One path through each part with real processes, for the suite `quick`:
#: Redfish, IPMI, media, operator, cluster file.
QUICK_TESTS = (
    'redfish.test_emulator.TestWrites.test_one_time_boot',
    'ipmi.test_pod.ServeTest.test_power_boot_and_metrics',
    'redfish.test_virtual_media.TestMedia.test_sushy_inserts_and_ejects',
    'operator.test_transcripts.TranscriptTestCase.test_readme',
    'cluster.test_user.UserTestCase.test_plan_to_teardown',
)


def workers(suites):
    """Return the option for the number of workers of tests that wait.

    With one for each core, a third of the CPU time is idle, because tests wait
    for their processes. QEMU's and DMTF's tests were not faster with more.

    :param suites: how many suites run at the same time
    """
    cores = os.cpu_count()
    return '--concurrency', str(cores + cores // suites)


# The same for the suites that run now.
WORKERS = workers(1)

# What stestr prints if no test matches the regular expression, and if none
# has passed.
_NO_MATCH = "The specified regex doesn't match with anything"
_NONE_PASSED = 'No tests were successful during the run'

# Options in addition to .stestr.conf.
STESTR_OPTIONS = ()


@dataclasses.dataclass(frozen=True)
class Result:
    """Counts of tests."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: Output of each failed test, if known per test.
    failures: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    def __add__(self, other):
        return Result(self.passed + other.passed, self.failed + other.failed,
                      self.skipped + other.skipped,
                      self.failures + other.failures)

    def __str__(self):
        text = f'{self.passed} passed, {self.failed} failed'
        return text + (f', {self.skipped} skipped' if self.skipped else '')


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _wait_for_children(patience):
    """Wait until all child and adopted processes have ended.

    :param patience: seconds
    :returns: list of the pids of those that still run
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        pids = guard.below(os.getpid())
        if not pids or time.monotonic() > deadline:
            return pids
        time.sleep(0.1)


def kill_leftovers(patience=10):
    """Kill the processes that a suite has left running.

    :param patience: seconds to wait for them to end by themselves.
    :returns: list of command lines.
    """
    pids = _wait_for_children(patience)
    commands = []
    for pid in pids:
        try:
            with open(f'/proc/{pid}/cmdline') as stream:
                # Two words only: an argument may be a secret.
                words = stream.read().split('\0')
        except OSError:
            continue
        commands.append(' '.join(words[:2]))
        _kill(pid)
    if pids:
        _wait_for_children(10)
    return commands


def run(*command, env=None, timeout=TIMEOUT, sink=None, cwd=checkout.ROOT):
    """Run a command and print its output.

    :param env: environment variables in addition to this process's own.
    :param timeout: seconds until it and all its descendants are killed.
    :param sink: list to which the lines of the output are appended.
    :param cwd: folder to run it in.
    :returns: exit code; negative when a signal ended it.
    """
    own = {**os.environ, 'PYTHON': sys.executable,
           'PATH': f"{BIN}{os.pathsep}{os.environ['PATH']}", **(env or {})}
    with subprocess.Popen([str(word) for word in command], env=own, cwd=cwd,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          errors='replace') as child:

        def expire(signum, frame):
            print(f'\nkilled: it took more than {timeout} s', flush=True)
            # Kill all descendants: the read below ends when none of them holds
            # the pipe open.
            for pid in guard.below(os.getpid()):
                _kill(pid)

        signal.signal(signal.SIGALRM, expire)
        signal.alarm(timeout)
        try:
            for line in child.stdout:
                print(line, end='', flush=True)
                if sink is not None:
                    sink.append(line)
            return child.wait()
        finally:
            signal.alarm(0)
            _kill(child.pid)


def failed_command(command, code, lines):
    """Return the failure of a command that does not report single tests.

    :param code: its exit code.
    :param lines: its output.
    :returns: :class:`Result`
    """
    name, output = pathlib.Path(command).name, ''.join(lines).rstrip()
    return Result(failed=1, failures=(
        f'{name}: exit code {code}\n{output}',))


def run_as_test(*command, timeout=TIMEOUT):
    """Run a command without tests as one test: pass on exit code 0."""
    lines = []
    code = run(*command, timeout=timeout, sink=lines)
    if code == 0:
        return Result(passed=1)
    return failed_command(command[0], code, lines)


def pep8(folder):
    """Check the style of the paths that tox.ini lists for it, and the types
    of the product."""
    style = run_as_test(
        BIN / 'flake8', 'setup.py', 'sushy_kubevirt', 'vbmc_kubevirt', 'etc',
        'devstack', 'images', 'sandbox', 'tests', 'tools',
        'doc/source/conf.py', 'releasenotes/source/conf.py')
    return style + run_as_test(
        BIN / 'mypy', '--cache-dir', os.path.join(folder, 'mypy'))


def _sphinx(folder, source):
    return run_as_test(
        BIN / 'sphinx-build', '-W', '--keep-going', '-q', '-b', 'html',
        '-d', os.path.join(folder, 'doctrees'), source,
        os.path.join(folder, 'html'))


def docs(folder):
    """Build the documents; every warning is an error."""
    return (_sphinx(os.path.join(folder, 'product'), 'doc/source')
            + _sphinx(os.path.join(folder, 'sandbox'), 'sandbox/doc/source'))


def releasenotes(folder):
    """Build the release notes; every warning is an error."""
    return _sphinx(folder, 'releasenotes/source')


def parse_failures(lines):
    """Extract stestr's report of each failed test.

    :param lines: its output.
    :returns: tuple of texts; the first line has the name of the test.
    """
    outputs = []
    failing = False
    for line in lines:
        if re.match(r'\{\d+\} |=+$', line):
            failing = line.rstrip().endswith('FAILED')
            if failing:
                outputs.append([])
        if failing:
            outputs[-1].append(line)
    return tuple(''.join(each).rstrip() for each in outputs)


class _Record(list):
    """Lines of output, whose passed tests are added to a file.

    :param path: of the file, one name a line; None for no file
    """

    def __init__(self, path=None):
        super().__init__()
        self._path = path

    def append(self, line):
        """Keep a line."""
        super().append(line)
        passed = self._path and re.match(
            r'\{\d+\} (\S+) \[.*\] \.\.\. ok$', line.rstrip())
        if passed:
            with open(self._path, 'a') as stream:
                stream.write(passed[1] + '\n')


def stestr(folder, path, *options, env=None, project=checkout.ROOT,
           timeout=TIMEOUT, programs=BIN, record=None):
    """Run tests in parallel and count them by stestr's summary.

    :param path: folder of the tests.
    :param options: additional arguments, which select tests.
    :param env: additional environment variables.
    :param project: folder of the project whose tests they are.
    :param timeout: seconds
    :param programs: folder with the programs of the Python to use.
    :param record: path of a file that gets the names of passed tests.
    :returns: :class:`Result`
    """
    program = programs / 'stestr'
    lines = _Record(record)
    # Omit the output of passed tests, which hides that of failed ones.
    code = run(program, '--repo-url', folder, *STESTR_OPTIONS, 'run',
               '--slowest', '--suppress-attachments', *options, sink=lines,
               cwd=project, timeout=timeout, env={
                   'OS_TEST_PATH': path, 'OS_TEST_TIMEOUT': '600',
                   **(env or {})})
    counts = {}
    for line in lines:
        if match := re.match(r' - (\w[\w ]*): (\d+)$', line.rstrip()):
            counts[match[1]] = int(match[2])
    result = Result(
        passed=counts.get('Passed', 0) + counts.get('Expected Fail', 0),
        failed=counts.get('Failed', 0) + counts.get('Unexpected Success', 0),
        skipped=counts.get('Skipped', 0), failures=parse_failures(lines))
    if any(line.startswith(_NO_MATCH) or result.skipped and line.startswith(
            _NONE_PASSED) for line in lines):
        # `main` reports a total of no tests as a failure.
        return result
    if code != 0 and not result.failed:
        # A test module could not be imported, or a worker was killed.
        result += failed_command(program, code, lines)
    return result


def _with_each_python(folder, project):
    """Run unit tests with this Python, and with each other of the machine.

    :param project: folder of the project whose tests they are.
    """
    result = Result()
    pythons = {platform.python_version(): sys.executable,
               **interpreters.others()}
    for version, path in pythons.items():
        print(f'===== Python {version}, {path}', flush=True)
        programs = (BIN if path == sys.executable
                    else interpreters.environment(version, path))
        repository = os.path.join(folder, version)
        os.mkdir(repository)
        ran = stestr(
            repository, './tests/unit', *WORKERS, project=project,
            programs=programs, env={
                'PYTHON': str(programs / 'python'),
                'PATH': f"{programs}{os.pathsep}{os.environ['PATH']}"})
        result += dataclasses.replace(ran, failures=tuple(
            f'Python {version}: {output}' for output in ran.failures))
    return result


def unit(folder):
    """Run the unit tests with each Python of this machine."""
    return _with_each_python(folder, checkout.ROOT)


def repository(folder):
    """Check documents, manifests, workflows, requirements and tools."""
    return stestr(folder, './tests/repository')


def functional(folder):
    """Run the functional tests: real processes and real clients."""
    return stestr(folder, './tests/functional', *WORKERS, '--exclude-regex',
                  QEMU_TESTS)


def quick(folder):
    """Run the unit tests, and one path through each part, in minutes."""
    result = Result()
    for name, chosen in ('unit', ''), ('functional', '|'.join(
            re.escape(test) + '$' for test in QUICK_TESTS)):
        repository = os.path.join(folder, name)
        os.mkdir(repository)
        result += stestr(repository, f'./tests/{name}', *WORKERS, chosen)
    return result


def sandbox_unit(folder):
    """Run the unit tests of the sandbox likewise."""
    return _with_each_python(folder, SANDBOX)


def sandbox_functional(folder):
    """Run the functional tests of the sandbox, with real clients."""
    return stestr(folder, './tests/functional', *WORKERS, '--exclude-regex',
                  QEMU_TESTS, project=SANDBOX)


def _on_cluster(folder, options, *tests, project=checkout.ROOT):
    """Run tests against a given cluster, one by one, as they share it.

    :param options: of the command line: ``cluster``, ``namespace``, ``image``,
        ``medium``, ``tests``
    :param tests: regular expressions; a name must match all
    """
    passed = pathlib.Path(folder + '-passed')
    known = options.resume and os.path.exists(options.resume)
    names = pathlib.Path(options.resume).read_text().split() if known else []
    passed.write_text(''.join(f'{re.escape(name)}$\n' for name in names))
    matches_all = ''.join(f'(?=.*(?:{each}))' for each in (
        *tests, *filter(None, [options.tests])))
    try:
        with cluster.environment(options.cluster, options.namespace,
                                 options.image, options.medium,
                                 lambda: kill_leftovers(0)) as env:
            return stestr(folder, './tests/functional', '--concurrency', '1',
                          '--exclude-regex', QEMU_TESTS,
                          '--exclude-list', str(passed), '^' + matches_all,
                          project=project, timeout=CLUSTER_TIMEOUT,
                          record=options.resume,
                          env={**env, 'OS_TEST_TIMEOUT': '1800'})
    except cluster.Unusable as exc:
        return Result(failed=1, failures=(f'the cluster\n{exc}',))


def functional_on_cluster(folder, options):
    """Run the functional tests against a given cluster.

    :param options: as in `_on_cluster`
    """
    return _on_cluster(folder, options)


def sandbox_functional_on_cluster(folder, options):
    """Run the sandbox's tests of other projects' APIs likewise."""
    return _on_cluster(folder, options, API_TESTS, project=SANDBOX)


def qemu(folder):
    """Run the tests with real guests in QEMU, of product and sandbox.

    ``bindep.txt`` lists the packages they need.
    """
    result = Result()
    for name, project in ('product', checkout.ROOT), ('sandbox', SANDBOX):
        repository = os.path.join(folder, name)
        os.mkdir(repository)
        result += stestr(repository, './tests/functional', QEMU_TESTS,
                         project=project)
    return result


def dmtf(folder):
    """Run DMTF's validators and print a summary of their findings.

    Runs that need DMTF's schemas or Ironic's profile are skipped if those are
    missing; see :mod:`tests.dmtf.validators`.
    """
    summary = os.path.join(folder, 'summary')
    result = stestr(folder, './tests/dmtf', env={'DMTF_SUMMARY': summary})
    if os.path.exists(summary):
        with open(summary) as stream:
            print(stream.read())
    if result.skipped:
        print(f'SKIPPED: {result.skipped} runs of the service and '
              "interoperability validators: DMTF's schemas or Ironic's "
              'profile are missing')
    return result


def clients(folder):
    """Run the tests with clients that other projects maintain.

    They need packages that nothing else needs, which are installed first; see
    :mod:`tests.clients.environment`. The last step compares the table of
    tested clients in the documentation with the results, and fails if a
    client was not tested.
    """
    result = run_as_test(sys.executable, '-m', 'tests.clients.environment')
    if result.failed:
        return result
    result += stestr(folder, './tests/clients', *WORKERS)
    return result + run_as_test(
        sys.executable, '-m', 'tests.clients.table', '--complete')


def _in_environment(folder, name, seconds, *options, env=None):
    """Install the environment of a suite, and run the tests in its folder.

    :param name: of the suite; see :mod:`tests.fixtures.environments`
    :param seconds: time limit of one test
    :param options: of stestr
    :param env: additional environment variables
    """
    result = run_as_test(sys.executable, '-m', environments.__name__, name)
    if result.failed:
        return result
    return result + stestr(folder, f'./tests/{name}', *options,
                           env={'OS_TEST_TIMEOUT': str(seconds),
                                **(env or {})})


def web(folder):
    """Run the web page of BMCs in Debian's Chromium."""
    # Beside the logs, and kept like them.
    return _in_environment(folder, 'web', 600, *WORKERS, env={
        'SUSHY_KUBEVIRT_TEST_PAGES': f'{folder}-pages'})


def bifrost(folder):
    """Run Bifrost's playbooks against VMs with BMCs."""
    # A test runs several playbooks.
    return _in_environment(folder, 'bifrost', 1800)


def devstack(folder):
    """Run the DevStack plugin, with a real Ironic and its plugin's functions.
    """
    # A test runs several commands of OpenStack, which take long to start.
    return _in_environment(folder, 'devstack', 900, *WORKERS)


def openstack(folder):
    """Run the tests with a complete OpenStack, whose VMs are QEMU guests."""
    # The cloud is one for all tests.
    return _in_environment(folder, 'openstack', 1800, '--concurrency', '1')


def metal3(folder):
    """Run baremetal-operator, clusterctl and Ironic on BMCs.

    The tests are skipped without the programs; see
    :mod:`tests.fixtures.metal3.programs`.
    """
    return stestr(folder, './tests/metal3', '--concurrency', '1',
                  env={'OS_TEST_TIMEOUT': '900'})


def images(folder):
    """Build the container images, and run them.

    The tests are skipped without root and where podman cannot run containers.
    """
    # All tests share the images.
    return _in_environment(folder, 'images', 900, '--concurrency', '1')


def demo(folder):
    """Run the tour as a user would."""
    return run_as_test(checkout.ROOT / 'tools' / 'demo', '--tour',
                       timeout=600)


def findings(folder):
    """Run each script of ``findings/``: what other software does."""
    result = Result()
    for script in sorted((checkout.ROOT / 'findings').glob('*.sh')):
        print(f'----- {script.stem}', flush=True)
        outcome = run_as_test(script, timeout=FINDING_TIMEOUT)
        print(f'{script.stem}: {outcome}', flush=True)
        result += outcome
    return result


def bench(folder):
    """Run the shortest benchmark, as a test that it works."""
    return run_as_test(checkout.ROOT / 'tools' / 'bench', '--quick',
                       timeout=600)


#: They start in this order: the quick ones first, then the long ones, so that
#: short ones are left for the end.
SUITES = {
    'pep8': pep8,
    'docs': docs,
    'releasenotes': releasenotes,
    'repository': repository,
    'unit': unit,
    'sandbox-unit': sandbox_unit,
    'functional': functional,
    'openstack': openstack,
    'web': web,
    'qemu': qemu,
    'dmtf': dmtf,
    'clients': clients,
    'sandbox-functional': sandbox_functional,
    'bifrost': bifrost,
    'devstack': devstack,
    'metal3': metal3,
    'images': images,
    'demo': demo,
    'bench': bench,
}

#: Suites that only run when they are named: others contain the tests of
#: `quick`, and `findings` does not concern the product.
NAMED_SUITES = {'quick': quick, 'findings': findings}

#: Suites of ``--cluster``; they also take the command line's options.
CLUSTER_SUITES = {
    'functional': functional_on_cluster,
    'sandbox-functional': sandbox_functional_on_cluster,
}


def junit(report, code, lines=()):
    """Count tests by a report of pytest.

    :param report: path of the report.
    :param code: exit code of pytest.
    :param lines: its output.
    :returns: :class:`Result`
    """
    suite = xml.etree.ElementTree.parse(report).find('.//testsuite')
    tests, failures, errors, skipped = (
        int(suite.get(name))
        for name in ('tests', 'failures', 'errors', 'skipped'))
    result = Result(tests - failures - errors - skipped, failures + errors,
                    skipped)
    if code != 0:
        failure = failed_command('pytest', code, lines)
        result += (failure if not result.failed
                   else Result(failures=failure.failures))
    return result


def conformance(folder, cases):
    """Run recorded cases of other projects' APIs against a sandbox.

    :param cases: folders with modules ``test_*.py``. The head of
        ``test_kubevirt_api.py`` documents the environment variables with the
        API's address.
    :returns: :class:`Result`
    """
    report = os.path.join(folder, 'report.xml')
    files = [module.resolve() for each in cases
             for module in sorted(pathlib.Path(each).glob('test_*.py'))]
    if not files:
        return Result(failed=1, failures=(
            f"no modules test_*.py in {', '.join(cases)}",))
    lines = []
    with sandbox.Sandbox(vms=0) as running:
        code = run(
            BIN / 'pytest', '-q', '-p', 'no:cacheprovider',
            '--junitxml', report, *files, sink=lines,
            env={'KUBEVIRT_API': running.url,
                 'KUBEVIRT_TOKEN': running.token,
                 'KUBEVIRT_CA': str(running.ca),
                 'GUEST_CONTROL': running.url
                 + '/sandbox/guests/{ns}/{name}/{action}'})
    return junit(report, code, lines)
