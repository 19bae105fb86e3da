# SPDX-License-Identifier: Apache-2.0
"""Machines in a cluster whose controllers and garbage collection are late.

What holds in a cluster that acts at once may hold by chance. These are tests
of other modules, chosen for what they wait for, with up to 0.3 s of delay
before each turn of each controller.
"""

from tests.functional.boot import test_overrides as boot
from tests.functional.media import test_drives as media
from tests.functional.media import test_faults as robust
from tests.functional.power import test_power as power

LAG = '0.3'


def _late(case, *tests):
    """Make a test case of some tests of another one."""
    others = {name: None for name in dir(case)
              if name.startswith('test') and name not in tests}
    missing = [name for name in tests if not callable(getattr(case, name))]
    assert not missing, missing
    return type('Late' + case.__name__, (case,), {
        **others, '__module__': __name__, '__qualname__':
        'Late' + case.__name__, 'SANDBOX_ARGUMENTS': (
            *case.SANDBOX_ARGUMENTS, '--lag', LAG)})


SwitchTest = _late(power.SwitchTestCase,
                   'test_always_remembered_by_another_bmc',
                   'test_vm_that_is_deleted')
InBetweenTest = _late(power.InBetweenTestCase,
                      'test_on_waits_for_the_end_of_a_shutdown',
                      'test_off_while_powering_on',
                      'test_two_bmcs_at_once_restart_once')
OnceTest = _late(boot.OnceTestCase, 'test_order_before_comes_back',
                 'test_machine_switched_off_in_that_boot',
                 'test_next_override_in_that_boot')
DriveTest = _late(media.DriveTestCase,
                  'test_empty_drive_of_a_running_vm_is_filled_at_once',
                  'test_drive_is_added_to_a_vm_without')
ImportTest = _late(media.ImportTestCase,
                   'test_start_during_the_import_waits_for_it',
                   'test_failed_import_says_why_and_blocks_nothing',
                   'test_what_another_process_ejected_is_inserted_again')
RaceTest = _late(robust.RaceTestCase, 'test_insert_and_eject',
                 'test_twenty_at_once')
