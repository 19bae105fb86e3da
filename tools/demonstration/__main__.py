# SPDX-License-Identifier: Apache-2.0
"""The command ``tools/demo``: its options and its exit code.

:mod:`tools.demonstration.stage` runs the programs and
:mod:`tools.demonstration.tour` prints the demonstration.
"""

import argparse
import signal
import sys


def parse(argv):
    parser = argparse.ArgumentParser(
        prog='tools/demo',
        description='Start a sandbox, which simulates a KubeVirt cluster, '
                    'with the operator and a BMC (this needs kubectl), and '
                    'for two more VMs sushy-emulator for Redfish and vbmcd '
                    'for IPMI, all on loopback addresses, and print '
                    'commands that use them. Ctrl-C stops the processes and '
                    'deletes their files.')
    parser.add_argument(
        '--tour', action='store_true',
        help='run the printed commands one by one, check the effect of each '
             'on the VM, and end; exit code 0 only if all succeeded')
    parser.add_argument(
        '--no-operator', dest='operator', action='store_false',
        help='start the emulators only, as without kubectl')
    ports = parser.add_argument_group('ports, each a free one by default')
    for name, what in (
            ('sandbox', 'the Kubernetes API of the sandbox'),
            ('redfish', 'sushy-emulator'),
            ('vbmcd', 'vbmcd, for the command vbmc')):
        ports.add_argument(f'--{name}-port', type=port, metavar='PORT',
                           help=what)
    ports.add_argument(
        '--ipmi-port', type=port, metavar='PORT',
        help='the BMC of the first VM; the next port is for the second VM')
    return parser.parse_args(argv)


def port(text):
    number = int(text)
    if not 0 < number < 65535:
        raise ValueError(text)
    return number


def main(argv=None):
    options = parse(sys.argv[1:] if argv is None else argv)
    # Imported after the options are parsed, so that --help works before
    # bootstrap.
    from tools.demonstration import stage
    from tools.demonstration import step
    from tools.demonstration import tour

    signals = []

    def stop(signum, frame):
        signals.append(signum)
        # Ignore further signals during the clean-up.
        for again in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            signal.signal(again, signal.SIG_IGN)
        raise KeyboardInterrupt

    for signum in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(signum, stop)
    try:
        with stage.Stage(options) as running:
            if options.tour:
                return 0 if tour.tour(running) else 1
            tour.show(running)
            running.wait()
    except BaseException as exc:
        # An interrupted fixture may raise any exception.
        if signals:
            print('\nStopped; all processes have ended.')
            # Without --tour a signal is the normal way to end, so return 0.
            return 130 if options.tour else 0
        if isinstance(exc, (stage.ProgramFailed, step.Failed)):
            print(f'tools/demo: {exc}', file=sys.stderr)
            return 1
        raise


if __name__ == '__main__':
    sys.exit(main())
