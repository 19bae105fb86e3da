# SPDX-License-Identifier: Apache-2.0
"""Second part of the demonstration: emulators for several VMs.

They run outside of the cluster, as users without the operator start them.
"""

from kubevirt_sandbox.testing import process
from tools.demonstration import step


class Script:
    """The steps of this part.

    :param stage: :class:`tools.demonstration.stage.Stage`
    """

    def __init__(self, stage):
        self.stage = stage
        self.sandbox = stage.sandbox
        self.one, self.two = stage.vms
        self.guest = step.Guest(stage.sandbox, self.one)

    # Command builders

    def ipmi(self, name, words):
        bmc = self.stage.bmcs[name]
        return (f'ipmitool -I lanplus -H {bmc.address} -p {bmc.port} '
                f'-U {bmc.username} -f {self.stage.password_file} {words}')

    def curl(self, where, words=''):
        if words:
            words += ' \\\n    '
        return ('curl --silent --show-error --fail '
                f'--netrc-file {self.stage.netrc} '
                f'{words}{self.stage.emulator.url}{where}')

    def send(self, method, where, body):
        return self.curl(where, f"--request {method} \\\n    "
                         "--header 'Content-Type: application/json' \\\n    "
                         f"--data '{body}'")

    def reset(self, name, reset_type):
        return self.send(
            'POST', f'/redfish/v1/Systems/{self.stage.uuids[name]}/Actions/'
            'ComputerSystem.Reset', f'{{"ResetType": "{reset_type}"}}')

    def kubectl(self, words):
        return f'kubectl --kubeconfig {self.stage.kubeconfig} {words}'

    # Checks

    def system(self, name):
        return self.stage.emulator.system(self.stage.uuids[name])

    def powers_on(self, output):
        step.expect('Up/On' in output, 'unexpected output of ipmitool')
        return self.guest.expect_boot('Hdd')

    def status_on(self, output):
        step.expect('Chassis Power is on' in output, 'unexpected output')
        self.guest.expect_running()
        return 'it is on, and its guest runs'

    def reads_on(self, output):
        system = self.system(self.one)
        step.expect('"PowerState": "On"' in output.replace('":"', '": "'),
                    'Redfish reports another power state')
        step.expect(system['UUID'] == self.stage.uuids[self.one],
                    'the UUID is not that of the VM')
        memory = system['MemorySummary']['TotalSystemMemoryGiB']
        cpus = system['ProcessorSummary']['Count']
        return (f'Redfish agrees: {self.one} is On, with {memory} GiB and '
                f'{cpus} CPU')

    def page(self, output):
        step.expect('/web/main.js' in output, 'it is not the page')
        return 'open it in a browser for consoles, media and the log'

    def next_is_pxe(self, output):
        boot = self.system(self.one)['Boot']
        step.expect((boot['BootSourceOverrideTarget'],
                     boot['BootSourceOverrideEnabled']) == ('Pxe', 'Once'),
                    f'it reads back as {boot}')
        self.guest.expect_no_boot()
        return 'it reads back as Pxe, Once; the VM was not restarted'

    def ipmi_knows(self, output):
        step.expect('Boot Flag Valid' in output and 'Force PXE' in output,
                    'IPMI does not read what Redfish set')
        step.expect('only next boot' in output, 'IPMI says it is persistent')
        return 'IPMI reads what Redfish set: PXE, for the next boot'

    def boots_pxe(self, output):
        step.expect('Cycle' in output, 'unexpected output of ipmitool')
        return self.guest.expect_boot('Pxe')

    def boots_disk_again(self, output):
        found = self.guest.expect_boot('Hdd')
        boot = self.system(self.one)['Boot']
        step.expect(boot['BootSourceOverrideEnabled'] == 'Disabled',
                    f'the override is still set: {boot}')
        return found + '; the override was for one boot'

    def shuts_down(self, output):
        return self.guest.expect_stopped()

    def lists_vms(self, output):
        for name in self.stage.vms:
            step.expect(name in output, f'the output lacks {name}')
        return f"{' and '.join(self.stage.vms)} are used next"

    def lists_bmcs(self, output):
        for name in self.stage.vms:
            step.expect(name in output, f'the output lacks {name}')
        step.expect(output.count('running') == 2, 'not both are running')
        return 'both BMCs are running'

    def logs_in(self, output):
        step.expect(output.strip() == '201',
                    f'HTTP status {output}, not 201')
        return 'the session is open, its token is in the file'

    def session_serves(self, output):
        step.expect(self.stage.uuids[self.one] in output,
                    'the output lacks the system')
        return 'the token is accepted instead of the password'

    def medium(self):
        return self.stage.emulator.request(
            'GET', f'/redfish/v1/Systems/{self.stage.uuids[self.one]}/'
            'VirtualMedia/Cd', expect=200).json()

    def inserts(self, output):
        found = self.medium()
        step.expect(found['Inserted'] and found['Image'] == self.stage.image,
                    f"the drive has {found['Image']}")
        self.guest.expect_no_boot()
        return 'the drive has the image; the VM was not started'

    def imported(self, output):
        for volume in self.sandbox.list('datavolumes'):
            name = volume['metadata']['name']
            self.sandbox.wait(
                'datavolumes', name, lambda it: it
                and it.get('status', {}).get('phase') == 'Succeeded')
            return 'CDI has imported the image into DataVolume ' + name
        raise step.Failed('no DataVolume was created')

    def next_is_cd(self, output):
        boot = self.system(self.one)['Boot']
        step.expect((boot['BootSourceOverrideTarget'],
                     boot['BootSourceOverrideEnabled']) == ('Cd', 'Once'),
                    f'it reads back as {boot}')
        return 'it reads back as Cd, Once'

    def boots_cd(self, output):
        return self.guest.expect_boot('Cd')

    def ejects(self, output):
        step.expect(not self.medium()['Inserted'], 'the drive is not empty')
        for volume in self.sandbox.list('datavolumes'):
            self.sandbox.wait('datavolumes', volume['metadata']['name'],
                              lambda it: it is None)
        return 'the drive is empty, the DataVolume is deleted'

    # Steps

    def steps(self):
        """List all steps, in the order they are run."""
        system = '/redfish/v1/Systems/' + self.stage.uuids[self.one]
        media = system + '/VirtualMedia/Cd'
        token = self.stage.home / 'session'
        python = process.BIN / 'python'
        return [
            step.Step('List the VMs of the cluster',
                      self.kubectl('get virtualmachines'),
                      self.lists_vms, needs='kubectl'),
            step.Step('List the BMCs',
                      f'VIRTUALBMC_CONFIG={self.stage.vbmcd.config_file} '
                      f"{process.BIN / 'vbmc-kubevirt'} list",
                      self.lists_bmcs),
            step.Step(f'Power {self.one} on, over IPMI',
                      self.ipmi(self.one, 'chassis power on'), self.powers_on),
            step.Step('Read its power state',
                      self.ipmi(self.one, 'chassis power status'),
                      self.status_on),
            step.Step('Read the system, over Redfish',
                      self.curl(system)
                      + f' \\\n    | {python} -m json.tool',
                      self.reads_on),
            step.Step('Get the web page, which asks a browser for the login',
                      f'curl --silent --show-error --fail '
                      f'{self.stage.emulator.url}/', self.page),
            step.Step('Set a one-time boot from the network, over Redfish',
                      self.send('PATCH', system,
                                '{"Boot": {"BootSourceOverrideTarget": "Pxe",'
                                ' "BootSourceOverrideEnabled": "Once"}}'),
                      self.next_is_pxe),
            step.Step('Read the boot override, over IPMI',
                      self.ipmi(self.one, 'chassis bootparam get 5'),
                      self.ipmi_knows),
            step.Step('Power cycle it, over IPMI',
                      self.ipmi(self.one, 'chassis power cycle'),
                      self.boots_pxe),
            step.Step('Restart it, over Redfish',
                      self.reset(self.one, 'ForceRestart'),
                      self.boots_disk_again),
            step.Step('Shut it down, over Redfish',
                      self.reset(self.one, 'GracefulShutdown'),
                      self.shuts_down),
            step.Step('Open a session, over Redfish',
                      "curl --silent --show-error --fail "
                      "--write-out '%{http_code}' --output /dev/null \\\n    "
                      "--header 'Content-Type: application/json' "
                      f'--data @{self.stage.login} '
                      f'\\\n    --dump-header {token} \\\n    '
                      f'{self.stage.emulator.url}/redfish/v1/SessionService/'
                      'Sessions',
                      self.logs_in),
            step.Step('Use the session',
                      'curl --silent --show-error --fail --header '
                      f'"$(grep --ignore-case ^x-auth-token: {token} '
                      '\\\n        | tr --delete \'\\r\')" \\\n    '
                      f'{self.stage.emulator.url}/redfish/v1/Systems',
                      self.session_serves),
            step.Step('Insert an ISO image into its CD-ROM drive',
                      self.send('POST', media + '/Actions/VirtualMedia.'
                                'InsertMedia',
                                f'{{"Image": "{self.stage.image}"}}'),
                      self.inserts),
            step.Step('Read the state of the import',
                      self.curl(media)
                      + f' \\\n    | {python} -m json.tool',
                      self.imported),
            step.Step('Set a one-time boot from the image',
                      self.send('PATCH', system,
                                '{"Boot": {"BootSourceOverrideTarget": "Cd",'
                                ' "BootSourceOverrideEnabled": "Once"}}'),
                      self.next_is_cd),
            step.Step('Power it on', self.reset(self.one, 'On'),
                      self.boots_cd),
            step.Step('Eject the image',
                      self.send('POST', media + '/Actions/VirtualMedia.'
                                'EjectMedia', '{}'),
                      self.ejects),
        ]
