# SPDX-License-Identifier: Apache-2.0
"""What the operator is told on its command line.

What it is told about one BMC stands in that BMC: see `spec`.
"""

import argparse
import dataclasses
from importlib import metadata
import ipaddress
import os
import re

from cryptography import x509

from sushy_kubevirt.operator import permissions

PROGRAM = 'sushy-kubevirt-operator'

#: Where the Lease and the authority's Secret are, unless the operator runs
#: in a pod or is told otherwise.
SYSTEM_NAMESPACE = 'sushy-kubevirt-system'

#: The image of BMCs, as etc/kubernetes/base calls it.
IMAGE = 'sushy-kubevirt-emulator'

PORT = 8080

LEASE_SECONDS = 30

#: How many BMCs may be without a ready pod while a new image is rolled out.
MAX_UNAVAILABLE = 5

LEVELS = 'debug', 'info', 'warning', 'error'

#: A label's prefix and name, and a value, as Kubernetes has them.
_WORD = r'[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?'
_KEY = r'(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?' + _WORD
_VALUES = rf'\(\s*(?:{_WORD})?(?:\s*,\s*(?:{_WORD})?)*\s*\)'
_REQUIREMENT = re.compile(
    r'\s*(?:!\s*{key}|{key}|{key}\s*(?:=|==|!=)\s*(?:{word})?'
    r'|{key}\s+(?:in|notin)\s*{values})\s*'.format(
        key=_KEY, word=_WORD, values=_VALUES))

_NAMESPACE = re.compile(r'[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?')

_PULL_POLICIES = 'Always', 'IfNotPresent', 'Never'


@dataclasses.dataclass(frozen=True)
class Options:
    """
    :param kubeconfig: path, or None for the usual places
    :param context: name of a context in it, or None
    :param namespaces: tuple of the namespaces to look after; () for all
    :param system_namespace: where the Lease and the authority's Secret are
    :param identity: this process' name in the Lease, unlike any other's
    :param image: of BMCs that name none
    :param pull_policy: for pods, or None for Kubernetes' default
    :param allowed_images: tuple of what BMCs may name: see
        `permissions.image_allowed`
    :param auto_create: label selector of VMs that get a BMC, or None
    :param upload_proxy_url: of CDI's upload proxy as pods reach it, or None
        when nothing is uploaded
    :param upload_proxy_ca: certificates that it is known by, PEM; or None
        for those of the image
    :param max_unavailable: how many BMCs at a time an upgrade may stop
    :param leader_election: whether the Lease is waited for
    :param lease_seconds: how long it holds unless it is renewed
    :param listen: (address, port) of probes and metrics, or None
    :param log_format: ``json`` or ``plain``
    :param log_level: one of `LEVELS`
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple = ()
    system_namespace: str = SYSTEM_NAMESPACE
    identity: str = PROGRAM
    image: str = IMAGE
    pull_policy: str | None = None
    allowed_images: tuple = (IMAGE,)
    auto_create: str | None = None
    upload_proxy_url: str | None = None
    upload_proxy_ca: str | None = None
    max_unavailable: int = MAX_UNAVAILABLE
    leader_election: bool = True
    lease_seconds: float = LEASE_SECONDS
    listen: tuple | None = None
    log_format: str = 'json'
    log_level: str = 'info'


def parse(arguments=None, environ=os.environ):
    """Read a command line.

    :param arguments: list of words; None for those of the process
    :param environ: ``POD_NAME``, ``POD_NAMESPACE`` and ``POD_IP`` tell what
        is not said, in a pod
    :returns: `Options`
    :raises: SystemExit, with the reason on standard error
    """
    found = parser(environ).parse_args(arguments)
    values = vars(found)
    values['namespaces'] = tuple(dict.fromkeys(values['namespaces']))
    values['allowed_images'] = tuple(
        values['allowed_images'] or [permissions.repository(found.image)])
    values['identity'] = '%s_%s' % (
        environ.get('POD_NAME') or os.uname().nodename, os.urandom(4).hex())
    return Options(**values)


def parser(environ):
    """The command line."""
    result = argparse.ArgumentParser(
        prog=PROGRAM, description=(
            'Makes a BMC, with Redfish and IPMI, of each VirtualMachineBMC '
            'in a cluster with KubeVirt, and keeps it so. Runs in the '
            'cluster or outside; of several replicas, the one that holds '
            'the Lease works. Ends on SIGTERM and Ctrl-C.'))
    result.add_argument(
        '--version', action='version', version='%%(prog)s %s' % (
            metadata.version('sushy-kubevirt')))

    group = result.add_argument_group('cluster')
    group.add_argument(
        '--kubeconfig', metavar='PATH', help='how to reach the cluster '
        '(default: $KUBECONFIG, the account of the pod this runs in, '
        '~/.kube/config; the first there is)')
    group.add_argument(
        '--context', metavar='NAME', help='context of the kubeconfig '
        '(default: its current one)')
    group.add_argument(
        '--namespace', metavar='NAME', action='append', default=[],
        dest='namespaces', type=_namespace, help='look after this namespace '
        'alone; may be given many times (default: all namespaces)')
    group.add_argument(
        '--system-namespace', metavar='NAME', type=_namespace,
        default=environ.get('POD_NAMESPACE') or SYSTEM_NAMESPACE,
        help='where the Lease and the certificate authority are kept '
        '(default: the namespace of the pod this runs in, else %s)'
        % SYSTEM_NAMESPACE)

    group = result.add_argument_group('BMCs')
    group.add_argument(
        '--image', metavar='IMAGE', type=_image, default=IMAGE,
        help='container image of BMCs that name none (default: %(default)s)')
    group.add_argument(
        '--image-pull-policy', metavar='POLICY', dest='pull_policy',
        choices=_PULL_POLICIES, help='of the pods: %s (default: as '
        'Kubernetes has it for that image)' % ', '.join(_PULL_POLICIES))
    group.add_argument(
        '--allowed-images', metavar='REPOSITORY', type=_image,
        action='append', default=[], help='images a BMC may name: a '
        'repository, all below one (registry.test/lab/*), or * for any; may '
        'be given many times. What runs in a BMC can read the Secrets that '
        'the BMC names (default: the repository of --image)')
    group.add_argument(
        '--max-unavailable', metavar='N', type=_count,
        default=MAX_UNAVAILABLE, help='how many BMCs may be without a ready '
        'pod while a new image is rolled out (default: %(default)s)')
    group.add_argument(
        '--auto-create', metavar='SELECTOR', type=_selector, help='make a '
        'BMC for each VirtualMachine whose labels match, such as bmc=auto, '
        'and remove it with them')

    group.add_argument(
        '--upload-proxy-url', metavar='URL', type=_url, help="CDI's upload "
        'proxy as pods reach it, such as https://cdi-uploadproxy.cdi.svc, '
        'for virtual media that CDI cannot fetch itself (default: none, '
        'nothing is uploaded)')
    group.add_argument(
        '--upload-proxy-ca', metavar='FILE', type=_certificates,
        help='certificates that it is known by, PEM (default: those that '
        'the image has)')

    group = result.add_argument_group('replicas')
    group.add_argument(
        '--no-leader-election', dest='leader_election',
        action='store_false', help='work without holding the Lease: nothing '
        'keeps two such processes from working against each other')
    group.add_argument(
        '--lease-seconds', metavar='S', type=_lease, default=LEASE_SECONDS,
        help='after so long without a sign of life of the one that works, '
        'another one takes over (default: %(default)s)')

    group = result.add_argument_group('what it tells')
    group.add_argument(
        '--metrics-address', metavar='ADDRESS:PORT', type=_address,
        default='%s:%d' % (_host(environ), PORT), dest='listen',
        help='where /metrics, /livez and /readyz are served, without a '
        'password; port 0 chooses a free one and the log says which; an '
        'empty text for nowhere (default: port %d of the pod this runs in, '
        'else of 127.0.0.1)' % PORT)
    group.add_argument(
        '--log-format', choices=('json', 'plain'), default='json',
        help='a JSON object a line, or text (default: %(default)s)')
    group.add_argument(
        '--log-level', choices=LEVELS, default='info',
        help='(default: %(default)s)')
    return result


def _host(environ):
    address = environ.get('POD_IP') or '127.0.0.1'
    return f'[{address}]' if ':' in address else address


def _namespace(text):
    if _NAMESPACE.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(
        f'{text!r} is not a name of a namespace')


def _image(text):
    if text and not re.search(r'\s', text):
        return text
    raise argparse.ArgumentTypeError(f'{text!r} is not an image')


def _url(text):
    if re.fullmatch(r'https?://[^\s/?#@]+/?', text):
        return text.rstrip('/')
    raise argparse.ArgumentTypeError(
        f'{text!r} is not a URL such as https://cdi-uploadproxy.cdi.svc')


def _certificates(path):
    try:
        with open(path) as stream:
            text = stream.read()
        x509.load_pem_x509_certificates(text.encode())
        return text
    except (OSError, ValueError) as e:
        raise argparse.ArgumentTypeError(
            '%s has no certificates: %s'
            % (path, getattr(e, 'strerror', None) or e)) from None


def _count(text):
    if re.fullmatch('[1-9][0-9]{0,5}', text):
        return int(text)
    raise argparse.ArgumentTypeError(f'{text!r} is not a count of 1 or more')


def _lease(text):
    # The Lease holds whole seconds, and clients must have time to renew it.
    if re.fullmatch('[0-9]{1,4}', text) and 3 <= int(text) <= 3600:
        return int(text)
    raise argparse.ArgumentTypeError(
        f'{text!r} is not a whole number of seconds, 3 to 3600')


def _selector(text):
    if text.strip() and all(_REQUIREMENT.fullmatch(one)
                            for one in re.split(r',(?![^(]*\))', text)):
        return text.strip()
    raise argparse.ArgumentTypeError(
        '%r is not a label selector, such as bmc=auto or "bmc in (a, b)"'
        % text)


def _address(text):
    if not text:
        return None
    host, colon, port = text.rpartition(':')
    host = host.removeprefix('[').removesuffix(']')
    try:
        if not re.fullmatch('[0-9]{1,5}', port) or int(port) > 65535:
            raise ValueError
        return str(ipaddress.ip_address(host)), int(port)
    except ValueError:
        raise argparse.ArgumentTypeError(
            '%r is not ADDRESS:PORT, such as 127.0.0.1:%d, with an IP '
            'address' % (text, PORT)) from None
