# SPDX-License-Identifier: Apache-2.0
"""Command ``kubevirt-sandbox``: serve a simulated cluster until a signal."""
import argparse
import gc
import ipaddress
import logging
import os
import sys

from kubevirt_sandbox import qemu


class _Version(argparse.Action):
    """Print the version; only then is it looked up, which takes 30 ms."""

    def __call__(self, parser, namespace, values, option_string=None):
        from importlib import metadata
        print(parser.prog, metadata.version('kubevirt-sandbox'))
        parser.exit()


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
    """Build the parser of the command line."""
    result = argparse.ArgumentParser(
        prog='kubevirt-sandbox', description=(
            'Serve a Kubernetes API with KubeVirt and CDI, for development '
            'and tests. Objects are kept in memory; virtual machines are '
            'simulated or run by QEMU. Not for production. Prints "ready '
            'URL" when it serves; SIGTERM or Ctrl-C ends it.'))
    result.add_argument('--version', action=_Version, nargs=0,
                        help="show program's version number and exit")
    result.add_argument(
        '--listen', metavar='ADDRESS:PORT', type=_address,
        default=('127.0.0.1', 6443), help='address to serve on; port 0 '
        'chooses a free one (default: 127.0.0.1:6443)')
    result.add_argument(
        '--kubeconfig', metavar='PATH', required=True, help='file to write '
        'a kubeconfig to, with the CA and the administrator\'s token')
    result.add_argument('--vms', metavar='N', type=_count, default=0,
                        help='create N sample virtual machines, vm-0, vm-1, … '
                        'in namespace default (default: 0)')
    result.add_argument(
        '--nodes', metavar='N', type=_count, default=1,
        help='number of nodes, node-0, node-1, … (default: 1)')
    result.add_argument(
        '--boot-seconds', metavar='S', type=_seconds, default=0.2,
        help='seconds a guest takes to boot (default: 0.2)')
    result.add_argument(
        '--gates', metavar='NAME,…', type=_gates, default=None,
        help='KubeVirt feature gates to enable (default: RebootPolicy, '
        'DeclarativeHotplugVolumes); an empty string enables none')
    result.add_argument(
        '--deploying', action='store_true', help='show a KubeVirt object of '
        'phase Deploying, without observedKubeVirtVersion, as until all '
        'components of KubeVirt are ready; VMs run all the same')
    result.add_argument(
        '--storage', metavar='DIR', help='folder for the data of claims '
        'and DataVolumes, one sparse file each; kept when the sandbox ends '
        '(default: a temporary folder, which is removed)')
    result.add_argument(
        '--no-cdi', dest='cdi', action='store_false', help='start '
        'without CDI: DataVolumes are not served')
    result.add_argument(
        '--guests', choices=('simulated', 'qemu'), default='simulated',
        help='how guests run: simulated records which device the firmware '
        'would boot; qemu runs one QEMU process for each machine '
        '(default: simulated)')
    result.add_argument(
        '--image', metavar='REFERENCE=FILE', type=_image, action='append',
        default=[], dest='images', help='file (raw or qcow2, opened '
        'read-only) to use as the disk of a container image: of QEMU guests, '
        'and of DataVolumes with it as their source; may be repeated')
    result.add_argument(
        '--qemu-accel', choices=qemu.ACCELERATORS, default='auto',
        help='with --guests qemu: accelerator; auto is KVM where it works, '
        'else TCG (default: auto)')
    result.add_argument(
        '--qemu-memory', metavar='MIB', type=_size,
        default=qemu.DEFAULT_MEMORY, help='with --guests qemu: upper '
        'limit of a guest\'s memory in MiB (default: '
        f'{qemu.DEFAULT_MEMORY})')
    result.add_argument(
        '--qemu-outbound', action='store_true', help='with --guests qemu: '
        'connect cards in the pod network to this host, as 10.0.2.2, and to '
        'what it reaches (default: no connection)')
    result.add_argument(
        '--import-back-off', metavar='S', type=_seconds, default=0.5,
        help='seconds before an import that failed twice is retried, doubled '
        'after each further failure (default: 0.5; a real cluster: 10)')
    result.add_argument(
        '--crash-back-off', metavar='S', type=_seconds, default=0.5,
        help='seconds before a container that failed twice is restarted, '
        'doubled after each further failure (default: 0.5; a real cluster: '
        '10)')
    result.add_argument(
        '--pods', choices=('processes', 'pretended'), default='processes',
        help='how pods run: processes starts local processes; pretended '
        'starts none and sets pods Ready at once, for thousands of pods '
        '(default: processes)')
    result.add_argument(
        '--programs', metavar='DIR', help='folder in which the programs of '
        "containers are looked up before the sandbox's own environment")
    result.add_argument(
        '--token-seconds', metavar='S', type=_seconds, default=None,
        help='lifetime in seconds of the tokens mounted in pods; renewed '
        'after four fifths of it (default: as pods request)')
    result.add_argument(
        '--openshift', action='store_true', help="have OpenShift's security "
        'context constraints restricted-v2: namespaces have a range of user '
        'ids, pods get one and run as it, and pods that ask for another are '
        'rejected (as another user than root, containers only see that id); '
        'and routes, with an ingress controller')
    result.add_argument(
        '--harvester', action='store_true', help="have Harvester's webhooks "
        'and controllers for VMs')
    result.add_argument(
        '--lag', metavar='S', type=_seconds, default=0, help='delay each '
        'action of controllers, and each creation of a VMI, by a random time '
        'of up to S seconds, as in a busy cluster (default: 0)')
    result.add_argument(
        '--no-streaming-lists', dest='streaming_lists', action='store_false',
        help='refuse watches that request the initial objects '
        '(sendInitialEvents), as Kubernetes 1.31 and 1.33 do')
    result.add_argument(
        '--allow-remote', action='store_true', help='allow an address that '
        'is not loopback: any host that reaches it can control guests')
    result.add_argument('--debug', action='store_true',
                        help='log debug messages to standard error')
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
        # It logs a traceback for every upload that is not HTTP; failures of
        # handlers are logged by the proxy.
        logging.getLogger('aiohttp.server').setLevel(logging.CRITICAL)
    address = ipaddress.ip_address(options.listen[0])
    if not address.is_loopback and not options.allow_remote:
        arguments.error(
            f'{address} is not a loopback address: this server is for '
            'development and tests; --allow-remote allows it all the same')
    os.umask(0o077)
    # What the start makes stays; `lifecycle` switches the search for garbage
    # on again.
    gc.disable()
    from kubevirt_sandbox import lifecycle
    options.qemu = None
    try:
        if options.guests == 'qemu':
            from kubevirt_sandbox.qemu import host
            options.qemu = host.find(
                options.qemu_accel, options.qemu_memory,
                dict(options.images), options.qemu_outbound)
        lifecycle.run(options)
    except (OSError, qemu.SettingsError) as exc:
        print(f'kubevirt-sandbox: {exc}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == '__main__':
    sys.exit(main())
