# SPDX-License-Identifier: Apache-2.0
"""The commands of the demonstration: to paste, and to run as a tour.

A step is one command and a check of what it did. Where a step is about what
a VM boots, the record of its guest decides, not the command's answer.
"""

import collections.abc
import dataclasses
import shutil
import subprocess
import sys
import textwrap

from tests.functional import process


class Failed(Exception):
    """A step did not do what it says; the text tells how."""


@dataclasses.dataclass
class Step:
    """One command of the demonstration.

    ``check`` gets the command's output and returns a sentence about what
    it found; it raises :class:`Failed` or :class:`AssertionError`.
    ``needs`` is a program the step is left out without.
    """

    title: str
    command: str
    check: collections.abc.Callable[[str], str]
    needs: str = ''


def expect(condition, text):
    if not condition:
        raise Failed(text)


class Script:
    """The steps, in their order, for what is running.

    :param stage: :class:`tools.demonstration.stage.Stage`
    """

    def __init__(self, stage):
        self.stage = stage
        self.sandbox = stage.sandbox
        self.one, self.two = stage.vms
        self.vmi = None
        self.booted = 0

    # Beginnings of commands

    def ipmi(self, name, words):
        bmc = self.stage.bmcs[name]
        return ('ipmitool -I lanplus -H %s -p %d -U %s -f %s %s' % (
            bmc.address, bmc.port, bmc.username, self.stage.password_file,
            words))

    def curl(self, where, words=''):
        return 'curl --silent --show-error --fail --netrc-file %s %s%s%s' % (
            self.stage.netrc, words and words + ' \\\n    ',
            self.stage.emulator.url, where)

    def send(self, method, where, body):
        return self.curl(where, "--request %s \\\n    "
                         "--header 'Content-Type: application/json' \\\n    "
                         "--data '%s'" % (method, body))

    def reset(self, name, reset_type):
        return self.send(
            'POST', '/redfish/v1/Systems/%s/Actions/ComputerSystem.Reset'
            % self.stage.uuids[name], '{"ResetType": "%s"}' % reset_type)

    def kubectl(self, words):
        return 'kubectl --kubeconfig %s %s' % (self.stage.kubeconfig, words)

    # What is looked at

    def system(self, name):
        return self.stage.emulator.system(self.stage.uuids[name])

    def new_boot(self, name, device_class):
        """Wait for the next boot of a VM's guest and look at its record."""
        before = self.vmi
        running = self.sandbox.wait_running(name, other_than=before)
        self.vmi = running['metadata']['uid']
        boot = self.sandbox.wait_boot(name, self.booted + 1)
        boots = self.sandbox.boots(name)
        expect(len(boots) == self.booted + 1,
               '%d boots instead of one more' % (len(boots) - self.booted))
        self.booted = len(boots)
        expect(boot['vmi'] == self.vmi, 'the boot is of another VMI')
        expect(boot['class'] == device_class,
               'it booted from %s (%s)' % (boot['device'], boot['class']))
        return ('the guest of %s booted from %s (%s), in a new VMI'
                % (name, boot['device'], boot['class']))

    def nothing_booted(self, name):
        expect(len(self.sandbox.boots(name)) == self.booted,
               'the guest booted, and should not have')

    def powers_on(self, output):
        expect('Up/On' in output, 'ipmitool does not say so')
        return self.new_boot(self.one, 'Hdd')

    def status_on(self, output):
        expect('Chassis Power is on' in output, 'ipmitool says otherwise')
        expect(self.sandbox.guest(self.one)['running'],
               'the guest does not run')
        return 'it is on, and its guest runs'

    def reads_on(self, output):
        system = self.system(self.one)
        expect('"PowerState": "On"' in output.replace('":"', '": "'),
               'Redfish says otherwise')
        expect(system['UUID'] == self.stage.uuids[self.one],
               'the UUID is not that of the VM')
        return ('Redfish agrees: %s is On, with %s GiB and %s CPU' % (
            self.one, system['MemorySummary']['TotalSystemMemoryGiB'],
            system['ProcessorSummary']['Count']))

    def next_is_pxe(self, output):
        boot = self.system(self.one)['Boot']
        expect((boot['BootSourceOverrideTarget'],
                boot['BootSourceOverrideEnabled']) == ('Pxe', 'Once'),
               'it reads back as %s' % boot)
        self.nothing_booted(self.one)
        return 'it reads back as Pxe, Once; nothing was restarted'

    def ipmi_knows(self, output):
        expect('Boot Flag Valid' in output and 'Force PXE' in output,
               'IPMI does not read what Redfish set')
        expect('only next boot' in output, 'IPMI says it is persistent')
        return 'IPMI reads what Redfish set: PXE, for the next boot'

    def boots_pxe(self, output):
        expect('Cycle' in output, 'ipmitool does not say so')
        return self.new_boot(self.one, 'Pxe')

    def boots_disk_again(self, output):
        found = self.new_boot(self.one, 'Hdd')
        boot = self.system(self.one)['Boot']
        expect(boot['BootSourceOverrideEnabled'] == 'Disabled',
               'the override is still there: %s' % boot)
        return found + ': once was once'

    def shuts_down(self, output):
        self.sandbox.wait_stopped(self.one)
        self.nothing_booted(self.one)
        expect(not self.sandbox.guest(self.one)['running'],
               'the guest still runs')
        return 'the guest has ended, the VM has no VMI'

    def lists_vms(self, output):
        for name in self.stage.vms:
            expect(name in output, '%s is not in it' % name)
        return 'both VMs are there'

    def lists_bmcs(self, output):
        for name in self.stage.vms:
            expect(name in output, '%s is not in it' % name)
        expect(output.count('running') == 2, 'not both are running')
        return 'both BMCs are running'

    def logs_in(self, output):
        expect(output.strip() == '201', 'the login was answered %s' % output)
        return 'there is a session, its token is in the file'

    def session_serves(self, output):
        expect(self.stage.uuids[self.one] in output,
               'it does not list the systems')
        return 'the token does what the password does'

    def medium(self):
        return self.stage.emulator.request(
            'GET', '/redfish/v1/Systems/%s/VirtualMedia/Cd'
            % self.stage.uuids[self.one], expect=200).json()

    def inserts(self, output):
        found = self.medium()
        expect(found['Inserted'] and found['Image'] == self.stage.image,
               'the drive has %s' % found['Image'])
        self.nothing_booted(self.one)
        return 'the drive has it; nothing was started'

    def imported(self, output):
        for volume in self.sandbox.list('datavolumes'):
            name = volume['metadata']['name']
            self.sandbox.wait(
                'datavolumes', name, lambda it: it
                and it.get('status', {}).get('phase') == 'Succeeded')
            return 'CDI has fetched the image into DataVolume ' + name
        raise Failed('there is no DataVolume')

    def next_is_cd(self, output):
        boot = self.system(self.one)['Boot']
        expect((boot['BootSourceOverrideTarget'],
                boot['BootSourceOverrideEnabled']) == ('Cd', 'Once'),
               'it reads back as %s' % boot)
        return 'it reads back as Cd, Once'

    def boots_cd(self, output):
        return self.new_boot(self.one, 'Cd')

    def ejects(self, output):
        expect(not self.medium()['Inserted'], 'the drive is not empty')
        for volume in self.sandbox.list('datavolumes'):
            self.sandbox.wait('datavolumes', volume['metadata']['name'],
                              lambda it: it is None)
        return 'the drive is empty, the DataVolume is gone'

    # The steps

    def steps(self):
        """List the steps, in the order they are run."""
        system = '/redfish/v1/Systems/' + self.stage.uuids[self.one]
        media = system + '/VirtualMedia/Cd'
        token = self.stage.home / 'session'
        python = process.BIN / 'python'
        return [
            Step('List the VMs of the cluster',
                 self.kubectl('get virtualmachines'),
                 self.lists_vms, needs='kubectl'),
            Step('List the BMCs',
                 'VIRTUALBMC_CONFIG=%s %s list' % (
                     self.stage.vbmcd.config_file, process.BIN / 'vbmc'),
                 self.lists_bmcs),
            Step('Power %s on, over IPMI' % self.one,
                 self.ipmi(self.one, 'chassis power on'), self.powers_on),
            Step('Ask whether it is on',
                 self.ipmi(self.one, 'chassis power status'),
                 self.status_on),
            Step('Read it over Redfish',
                 self.curl(system) + ' \\\n    | %s -m json.tool' % python,
                 self.reads_on),
            Step('Let it boot from the network, once, over Redfish',
                 self.send('PATCH', system,
                           '{"Boot": {"BootSourceOverrideTarget": "Pxe",'
                           ' "BootSourceOverrideEnabled": "Once"}}'),
                 self.next_is_pxe),
            Step('Read that over IPMI',
                 self.ipmi(self.one, 'chassis bootparam get 5'),
                 self.ipmi_knows),
            Step('Power cycle it, over IPMI',
                 self.ipmi(self.one, 'chassis power cycle'), self.boots_pxe),
            Step('Restart it, over Redfish',
                 self.reset(self.one, 'ForceRestart'),
                 self.boots_disk_again),
            Step('Shut it down, over Redfish',
                 self.reset(self.one, 'GracefulShutdown'), self.shuts_down),
            Step('Log in over Redfish, for a session',
                 "curl --silent --show-error --fail "
                 "--write-out '%%{http_code}' --output /dev/null \\\n    "
                 "--header 'Content-Type: application/json' --data @%s "
                 "\\\n    --dump-header %s \\\n    "
                 '%s/redfish/v1/SessionService/Sessions' % (
                     self.stage.login, token, self.stage.emulator.url),
                 self.logs_in),
            Step('Use the session',
                 'curl --silent --show-error --fail --header '
                 '"$(grep --ignore-case ^x-auth-token: %s)" \\\n    '
                 '%s/redfish/v1/Systems' % (token, self.stage.emulator.url),
                 self.session_serves),
            Step('Insert an ISO image into its CD-ROM drive',
                 self.send('POST', media + '/Actions/VirtualMedia.'
                           'InsertMedia',
                           '{"Image": "%s"}' % self.stage.image),
                 self.inserts),
            Step('Look how far it is',
                 self.curl(media) + ' \\\n    | %s -m json.tool' % python,
                 self.imported),
            Step('Let it boot from that, once',
                 self.send('PATCH', system,
                           '{"Boot": {"BootSourceOverrideTarget": "Cd",'
                           ' "BootSourceOverrideEnabled": "Once"}}'),
                 self.next_is_cd),
            Step('Power it on', self.reset(self.one, 'On'), self.boots_cd),
            Step('Eject the image',
                 self.send('POST', media + '/Actions/VirtualMedia.'
                           'EjectMedia', '{}'),
                 self.ejects),
        ]


def show(stage):
    """Print the addresses, the credentials and the commands."""
    sandbox, emulator = stage.sandbox, stage.emulator
    print('\nKubernetes API   %s\n                 '
          'KUBECONFIG=%s' % (sandbox.url, stage.kubeconfig))
    print('Redfish          %s/redfish/v1' % emulator.url)
    for name in stage.vms:
        bmc = stage.bmcs[name]
        print('IPMI of %-8s %s port %d\n                 Redfish UUID %s' % (
            name, bmc.address, bmc.port, stage.uuids[name]))
    print('User, password   %s %s (Redfish and IPMI)'
          % (stage.bmcs[stage.vms[0]].username, stage.password))
    print('Logs and files   %s' % stage.home)
    print('\nCommands to paste into another terminal:')
    for step in Script(stage).steps():
        if step.needs and not shutil.which(step.needs):
            continue
        print('\n# %s\n%s' % (step.title, step.command))
    print('\n# See what the guest of %s has booted so far\n%s' % (
        stage.vms[0], 'curl --silent --cacert %s %s/sandbox/guests/default/%s'
        % (stage.ca, sandbox.url, stage.vms[0])))
    print('\nEverything is up. Ctrl-C ends it.', flush=True)


def run(command, env):
    """Run a command as a user's shell would; returns code and output."""
    done = subprocess.run(
        ['bash', '-c', command], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=120, env=env)
    return done.returncode, done.stdout


def tour(stage, stream=None):
    """Run the commands one by one and look at what each did.

    :param stream: where it is told; standard output when None.
    :returns: whether each did what it says.
    """
    stream = stream or sys.stdout
    bold, plain = ('\033[1m', '\033[0m') if stream.isatty() else ('', '')

    def tell(text=''):
        print(text, file=stream, flush=True)

    steps = Script(stage).steps()
    skipped = 0
    for number, step in enumerate(steps, 1):
        tell('\n%s%d/%d %s%s' % (bold, number, len(steps), step.title, plain))
        if step.needs and not shutil.which(step.needs):
            tell('  skipped: %s is not installed' % step.needs)
            skipped += 1
            continue
        tell('$ ' + step.command)
        code, output = run(step.command, stage.environment())
        lines = output.strip().splitlines()
        shown = lines[:12]
        if len(lines) > len(shown):
            shown.append('... and %d lines more' % (len(lines) - len(shown)))
        tell(textwrap.indent('\n'.join(shown), '  | '))
        try:
            expect(code == 0, 'the command ended with exit code %d' % code)
            tell('  -> ' + step.check(output))
        except (Failed, AssertionError, LookupError, OSError) as exc:
            tell('  -> FAILED: %s' % exc)
            return False
    tell('\nThe tour is over: each of %d steps did what it says%s.' % (
        len(steps) - skipped,
        ', %d left out' % skipped if skipped else ''))
    return True
