# SPDX-License-Identifier: Apache-2.0
"""Print the demonstration: commands to paste, or a tour that runs them."""

import shutil
import subprocess
import sys
import textwrap

from tools.demonstration import bmc
from tools.demonstration import emulators
from tools.demonstration import step


def scripts(stage):
    """Yield the parts of the demonstration, in order."""
    if stage.options.operator:
        yield bmc.Script(stage)
    yield emulators.Script(stage)


def prepare(stage):
    """Create the BMC, for a demonstration that is not a tour.

    :returns: whether there is one
    :raises step.Failed: a step failed; the message says how
    """
    if not stage.options.operator or not shutil.which('kubectl'):
        return False
    print('Installing the operator and creating a BMC ...',
          file=sys.stderr, flush=True)
    for one in bmc.Script(stage).setup_steps():
        code, output = run(one.text, stage.environment())
        step.expect(code == 0, f'{one.text}: {output}')
        one.check(output)
    return True


def show(stage):
    """Print the addresses, the credentials and the commands."""
    prepared = prepare(stage)
    sandbox, emulator = stage.sandbox, stage.emulator
    print(f'\nKubernetes API   {sandbox.url}\n'
          f'                 KUBECONFIG={stage.kubeconfig}')
    print(f'Redfish          {emulator.url}/redfish/v1\n'
          f'Web page         {emulator.url}/')
    for name in stage.vms:
        one = stage.bmcs[name]
        print(f'IPMI of {name:<8} {one.address} port {one.port}\n'
              f'                 Redfish UUID {stage.uuids[name]}')
    print(f'User, password   {stage.bmcs[stage.vms[0]].username} '
          f'{stage.password} (Redfish and IPMI)')
    if prepared:
        print(f'BMC of {bmc.NAME:<8}  {stage.address(bmc.NAME)}: '
              'Redfish port 443, IPMI port 623\n'
              f'                 Web page https://{stage.address(bmc.NAME)}/\n'
              f'                 User, password {bmc.USER} {bmc.PASSWORD}')
    print(f'Logs and files   {stage.home}')
    print('\nCommands to paste into another terminal:')
    for script in scripts(stage):
        for one in script.steps():
            if not one.needs or shutil.which(one.needs):
                print(f'\n# {one.title}\n{one.text}')
    print(f'\n# Show the boots of the guest of {stage.vms[0]}\n'
          f'curl --silent --cacert {stage.ca} '
          f'{sandbox.url}/sandbox/guests/default/{stage.vms[0]}')
    print('\nEverything is up. Ctrl-C ends it.', flush=True)


def run(command, env):
    """Run a command as a user's shell would. :returns: exit code, output"""
    done = subprocess.run(
        ['bash', '-c', command], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=120, env=env)
    return done.returncode, done.stdout


def tour(stage, stream=None):
    """Run the commands one by one and check the effect of each.

    :param stream: stream for the report; standard output when None.
    :returns: whether all steps succeeded.
    """
    stream = stream or sys.stdout
    bold, plain = ('\033[1m', '\033[0m') if stream.isatty() else ('', '')

    def report(text=''):
        print(text, file=stream, flush=True)

    steps = [one for script in scripts(stage) for one in script.steps()]
    skipped = 0
    for number, one in enumerate(steps, 1):
        report(f'\n{bold}{number}/{len(steps)} {one.title}{plain}')
        if one.needs and not shutil.which(one.needs):
            report(f'  skipped: {one.needs} is not installed')
            skipped += 1
            continue
        command = one.text
        report('$ ' + command)
        code, output = run(command, stage.environment())
        lines = output.strip().splitlines()
        shown = lines[:12]
        if len(lines) > len(shown):
            shown.append(f'... and {len(lines) - len(shown)} more lines')
        report(textwrap.indent('\n'.join(shown), '  | '))
        try:
            step.expect(code == 0,
                        f'the command ended with exit code {code}')
            report('  -> ' + one.check(output))
        except (step.Failed, AssertionError, LookupError, OSError) as exc:
            report(f'  -> FAILED: {exc}')
            return False
    report(f'\nTour finished: {len(steps) - skipped} steps succeeded'
           + (f', {skipped} skipped.' if skipped else '.'))
    return True
