# SPDX-License-Identifier: Apache-2.0
"""The command ``kubevirt-sandbox``: a stand-in cluster, in the foreground."""
import argparse
from importlib import metadata
import ipaddress
import logging
import os
import sys

from kubevirt_sandbox import lifecycle
from kubevirt_sandbox.qemu import host


def _version():
    return metadata.version('kubevirt-sandbox')


def _address(text):
    host, colon, port = text.rpartition(':')
    host = host.strip('[]')
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not ADDRESS:PORT, e.g. 127.0.0.1:6443')
    try:
        return str(ipaddress.ip_address(
            '127.0.0.1' if host in ('', 'localhost') else host)), int(port)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{host!r} is not an IP address') from None


def _gates(text):
    return [gate.strip() for gate in text.split(',') if gate.strip()]


def _count(text):
    try:
        value = int(text)
        if value >= 0:
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f'{text!r} is not a count')


def _seconds(text):
    try:
        value = float(text)
        if 0 <= value < 86400:
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f'{text!r} is not a time in seconds')


def _size(text):
    if text.isdigit() and int(text) >= 16:
        return int(text)
    raise argparse.ArgumentTypeError(f'{text!r} is not a size in MiB')


def _image(text):
    # A reference may hold no '='; a path may.
    reference, equals, path = text.partition('=')
    if reference and path:
        return reference, path
    raise argparse.ArgumentTypeError(
        f'{text!r} is not REFERENCE=FILE, e.g. '
        'quay.io/containerdisks/debian:13=debian-13.qcow2')


def parser():
    """The command line."""
    result = argparse.ArgumentParser(
        prog='kubevirt-sandbox', description=(
            'A stand-in for a Kubernetes cluster with KubeVirt, for '
            'development and tests: objects live in memory, virtual '
            'machines are simulated, or run by QEMU. Not for production. '
            'Prints one line, "ready URL", once it serves; ends on SIGTERM '
            'and Ctrl-C.'))
    result.add_argument('--version', action='version',
                        version=f'%(prog)s {_version()}')
    result.add_argument(
        '--listen', metavar='ADDRESS:PORT', type=_address,
        default=('127.0.0.1', 6443), help='where to serve; port 0 chooses a '
        'free one (default: 127.0.0.1:6443)')
    result.add_argument(
        '--kubeconfig', metavar='PATH', required=True, help='file to write '
        'with the CA and the administrator\'s token, for clients')
    result.add_argument('--vms', metavar='N', type=_count, default=0,
                        help='make N sample virtual machines, vm-0, vm-1, … '
                        'in namespace default (default: 0)')
    result.add_argument(
        '--boot-seconds', metavar='S', type=_seconds, default=0.2,
        help='how long a guest takes to boot (default: 0.2)')
    result.add_argument(
        '--gates', metavar='NAME,…', type=_gates, default=None,
        help='KubeVirt feature gates to switch on (default: RebootPolicy, '
        'DeclarativeHotplugVolumes); an empty text for none')
    result.add_argument(
        '--storage', metavar='DIR', help='folder for what claims and '
        'DataVolumes hold, one sparse file each; it stays when the sandbox '
        'ends (default: a temporary one, which does not)')
    result.add_argument(
        '--no-cdi', dest='cdi', action='store_false', help='a cluster '
        'without CDI: no DataVolumes')
    result.add_argument(
        '--guests', choices=('simulated', 'qemu'), default='simulated',
        help='what runs in a virtual machine: nothing, it is only said what '
        'firmware would boot (simulated), or what is on its disks (qemu) '
        '(default: simulated)')
    result.add_argument(
        '--image', metavar='REFERENCE=FILE', type=_image, action='append',
        default=[], dest='images', help='with --guests qemu: what a '
        'container image with a disk holds, a raw or qcow2 file that is not '
        'written to; may be given many times')
    result.add_argument(
        '--qemu-accel', choices=host.ACCELERATORS, default='auto',
        help='with --guests qemu: what runs the processors; auto is KVM '
        'where it works, else TCG (default: auto)')
    result.add_argument(
        '--qemu-memory', metavar='MIB', type=_size,
        default=host.DEFAULT_MEMORY, help='with --guests qemu: what a '
        'guest gets at most, whatever the machine says (default: '
        f'{host.DEFAULT_MEMORY})')
    result.add_argument(
        '--import-back-off', metavar='S', type=_seconds, default=0.5,
        help='how long an import that failed twice waits, and twice as long '
        'each further time (default: 0.5; a real cluster: 10)')
    result.add_argument(
        '--crash-back-off', metavar='S', type=_seconds, default=0.5,
        help='how long a container waits that failed twice, and twice as '
        'long each further time (default: 0.5; a real cluster: 10)')
    result.add_argument(
        '--pods', choices=('processes', 'pretended'), default='processes',
        help='what pods are: local processes, or nothing at all, Ready at '
        'once, for clusters with thousands of them (default: processes)')
    result.add_argument(
        '--token-seconds', metavar='S', type=_seconds, default=None,
        help='how long the tokens mounted in pods are good; new ones come '
        'after four fifths of it (default: as long as pods ask for)')
    result.add_argument(
        '--lag', metavar='S', type=_seconds, default=0, help='controllers '
        'act late, each time by up to so many seconds, as in a busy cluster '
        '(default: 0)')
    result.add_argument(
        '--allow-remote', action='store_true', help='allow an address that '
        'is not loopback: everybody who can reach it can control guests')
    result.add_argument('--debug', action='store_true',
                        help='say more on standard error')
    return result


def main(argv=None):
    """Run the command.

    :returns: exit status.
    """
    arguments = parser()
    options = arguments.parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if options.debug else logging.INFO,
        format='%(asctime)s %(levelname)s %(name)s: %(message)s')
    if not options.debug:
        logging.getLogger('asyncio').setLevel(logging.WARNING)
        # It has a traceback for every request that is no HTTP; the server
        # itself says what fails in it.
        logging.getLogger('aiohttp.server').setLevel(logging.CRITICAL)
    address = ipaddress.ip_address(options.listen[0])
    if not address.is_loopback and not options.allow_remote:
        arguments.error(
            f'{address} is not a loopback address: this server is for '
            'development and tests; --allow-remote allows it all the same')
    os.umask(0o077)
    options.qemu = None
    try:
        if options.guests == 'qemu':
            options.qemu = host.find(
                options.qemu_accel, options.qemu_memory,
                dict(options.images))
        lifecycle.run(options)
    except (OSError, host.SettingsError) as exc:
        print(f'kubevirt-sandbox: {exc}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == '__main__':
    sys.exit(main())
