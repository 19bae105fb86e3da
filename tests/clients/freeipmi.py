# SPDX-License-Identifier: Apache-2.0
"""FreeIPMI's commands with the BMC of a test case."""

import os
import subprocess

from tests.clients import case

#: Commands that do not read the SDR repository. The others cache it.
WITHOUT_SDR = ('bmc-info', 'ipmi-chassis', 'ipmi-dcmi', 'ipmi-raw',
               'ipmiconsole', 'ipmipower')


class FreeipmiTestCase(case.ClientTestCase):
    """A test case whose tests run commands of FreeIPMI."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cache = cls.home / 'sdr-cache'
        cls.cache.mkdir()
        cls.config = cls.home / 'freeipmi.conf'
        cls.config.write_text(
            f'driver-type LAN_2_0\nusername {cls.bmc.username}\n'
            f'password {cls.bmc.password}\n')
        cls.config.chmod(0o600)

    @classmethod
    def version(cls):
        # "bmc-info - 1.6.10"
        return subprocess.run(
            ['bmc-info', '--version'], env=cls.environment(),
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=True).stdout.split()[2]

    @classmethod
    def environment(cls):
        found = super().environment()
        return found | {'PATH': os.pathsep.join((found['PATH'], '/usr/sbin'))}

    def freeipmi(self, program, *words, **options):
        """Run a command of FreeIPMI as the operator's administrator."""
        # Not in the home folder, whatever HOME is.
        # The first of them would report on standard output that it fills it.
        cache = ([] if program in WITHOUT_SDR
                 else ['--sdr-cache-directory', self.cache, '--quiet-cache'])
        output = self.run_command(
            program, '--config-file', self.config, '--hostname',
            self.address, *cache, *words, **options)
        self.assertNotIn('internal IPMI error', output)
        return output
