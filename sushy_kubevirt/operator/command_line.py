# SPDX-License-Identifier: Apache-2.0
"""The operator's command line.

Settings of one BMC are in its resource: see `spec`.
"""

from __future__ import annotations

import argparse
from collections import abc
import dataclasses
from importlib import metadata
import ipaddress
import os
import re
import typing

from cryptography import x509

from sushy_kubevirt.kube import quantity
from sushy_kubevirt.machine.media import url_policy
from sushy_kubevirt.machine import options
from sushy_kubevirt.operator import config_map
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import endpoints
from sushy_kubevirt.operator import permissions
from sushy_kubevirt.operator.shared import placement

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import objects

PROGRAM = 'sushy-kubevirt-operator'

#: First word of the command line of `diagnose.command`.
DIAGNOSE = 'diagnose'

#: First word of the command line of `metal3.claim_kubeconfig`.
CLAIM_KUBECONFIG = 'claim-kubeconfig'

#: Default namespace of the Lease and the CA's Secret outside of a pod.
SYSTEM_NAMESPACE = 'sushy-kubevirt-system'

#: Image of BMCs, with its name in etc/kubernetes/base.
IMAGE = 'sushy-kubevirt-emulator'

PORT = 8080

LEASE_SECONDS = 30

#: BMCs that may be without a ready pod while a new image is rolled out.
MAX_UNAVAILABLE = 5

#: ``--pod-user``: decide by whether the cluster is OpenShift.
AUTO = 'auto'

LEVELS = 'debug', 'info', 'warning', 'error'

#: Kubernetes' syntax of a label's prefix, name and value.
LABEL_VALUE = r'[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?'
_PART = '[a-z0-9](?:[-a-z0-9]*[a-z0-9])?'
_PREFIX = rf'(?=[^/]{{1,253}}/){_PART}(?:[.]{_PART})*/'
LABEL_KEY = rf'(?:{_PREFIX})?{LABEL_VALUE}'
_VALUES = rf'\(\s*(?:{LABEL_VALUE})?(?:\s*,\s*(?:{LABEL_VALUE})?)*\s*\)'
_REQUIREMENT = re.compile(
    r'\s*(?:!\s*{key}|{key}|{key}\s*(?:=|==|!=)\s*(?:{word})?'
    r'|{key}\s+(?:in|notin)\s*{values})\s*'.format(
        key=LABEL_KEY, word=LABEL_VALUE, values=_VALUES))

#: What separates the requirements of a selector.
_BETWEEN = r',(?![^(]*\))'

_NAMESPACE = '[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?'

#: Of the subcommands: requests are sent once, within these seconds.
CLIENT_OPTIONS = options.Options(connect_timeout=5, request_timeout=10,
                                 write_deadline=20, page_size=100)

_PULL_POLICIES = 'Always', 'IfNotPresent', 'Never'

T = typing.TypeVar('T')


@dataclasses.dataclass(frozen=True)
class Options:
    """Values of the options of `parser`, whose help describes them.

    :param identity: unique name of this process in the Lease
    :param pod_user: uid and gid of the pods' containers; None if the cluster
        assigns them; `AUTO`
    :param allowed_images: patterns of `permissions.image_allowed`
    :param upload_proxy_ca: PEM text; None for the certificates of the image
    :param denied_hosts: entries of `url_policy`, as ``denied_except`` has
    :param cluster_hosts: the cluster's hosts, beside ``denied_hosts``
    :param listen: address and port of probes and metrics, or None
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    system_namespace: str = SYSTEM_NAMESPACE
    identity: str = PROGRAM
    image: str = IMAGE
    pull_policy: str | None = None
    pull_secrets: tuple[str, ...] = ()
    pod_user: int | str | None = deployments.USER
    pod_labels: dict[str, str] = dataclasses.field(default_factory=dict)
    pod_annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    allowed_images: tuple[str, ...] = (IMAGE,)
    auto_create: str | None = None
    bare_metal_hosts: str | None = None
    host_labels: tuple[str, ...] = ()
    host_failure_domain: str = 'topology.kubernetes.io/zone'
    host_verify: bool = True
    host_external: bool = False
    claim_templates: str | None = None
    claim_limit: int = 10
    upload_proxy_url: str | None = None
    upload_proxy_ca: str | None = None
    bmc_cpu: str = deployments.CPU
    denied_hosts: tuple[str, ...] = ()
    denied_except: tuple[str, ...] = ()
    cluster_hosts: tuple[str, ...] = ()
    max_unavailable: int = MAX_UNAVAILABLE
    default_placement: str = placement.PER_VM
    bmcs_per_pod: int = placement.BMCS_PER_POD
    leader_election: bool = True
    lease_seconds: float = LEASE_SECONDS
    listen: tuple[str, int] | None = None
    log_format: str = 'json'
    log_level: str = 'info'

    def pod_defaults(self) -> deployments.Defaults:
        """Make the settings for all pods, after `AUTO` was decided."""
        assert not isinstance(self.pod_user, str)
        return deployments.Defaults(
            self.image, cpu=self.bmc_cpu, pull_policy=self.pull_policy,
            pull_secrets=self.pull_secrets, user=self.pod_user,
            labels={**deployments.MESH_LABELS, **self.pod_labels},
            annotations={**deployments.MESH_ANNOTATIONS,
                         **self.pod_annotations},
            proxy=config_map.Proxy(self.upload_proxy_url, self.upload_proxy_ca)
            if self.upload_proxy_url else None,
            allowed_images=self.allowed_images,
            denied=config_map.Denied(self.denied_hosts, self.denied_except,
                                     self.cluster_hosts))


def parse(arguments: abc.Sequence[str] | None = None,
          environ: abc.Mapping[str, str] = os.environ) -> Options:
    """Parse a command line.

    :param arguments: None for those of the process
    :param environ: ``POD_NAME``, ``POD_NAMESPACE`` and ``POD_IP`` are the
        defaults in a pod
    :raises: SystemExit, with the reason on standard error
    """
    commands = parser(environ)
    values = vars(commands.parse_args(arguments))
    values['allowed_images'] = tuple(
        values['allowed_images'] or [permissions.repository(values['image'])])
    for field in 'pod_labels', 'pod_annotations':
        values[field] = dict(values[field])
    for field in ('namespaces', 'pull_secrets', 'denied_hosts',
                  'denied_except', 'host_labels'):
        values[field] = tuple(dict.fromkeys(values[field]))
    if values['claim_templates'] and not values['bare_metal_hosts']:
        commands.error('--claim-templates needs --bare-metal-hosts')
    name = environ.get('POD_NAME') or os.uname().nodename
    values['identity'] = f'{name}_{os.urandom(4).hex()}'
    return Options(**values)


def parser(environ: abc.Mapping[str, str]) -> argparse.ArgumentParser:
    """Make the parser; the environment is that of `parse`."""
    result = argparse.ArgumentParser(
        prog=PROGRAM, description=(
            'Runs a BMC, with Redfish and IPMI, for each VirtualMachineBMC '
            'in a cluster with KubeVirt. Runs in the cluster or outside of '
            'it; of several replicas, the one that holds the Lease works. '
            'Ends on SIGTERM and Ctrl-C.'), epilog=(
            f'"{PROGRAM} {DIAGNOSE} [BMC]" checks a cluster and its '
            'installation, and says what to do; '
            f'"{PROGRAM} {CLAIM_KUBECONFIG} NAMESPACE" makes an account for '
            'HostClaims of Metal3 from another cluster; see their --help.'))
    result.add_argument(
        '--version', action='version', version=f'%(prog)s {version()}')

    group = result.add_argument_group('cluster')
    add_cluster(group)
    group.add_argument(
        '--namespace', metavar='NAME', action='append', default=[],
        dest='namespaces', type=namespace, help='serve the BMCs of this '
        'namespace only; may be repeated (default: all namespaces)')
    add_system_namespace(group, environ)

    group = result.add_argument_group('BMCs')
    group.add_argument(
        '--image', metavar='IMAGE', type=_image, default=IMAGE,
        help='container image of BMCs that name none (default: %(default)s)')
    group.add_argument(
        '--image-pull-policy', metavar='POLICY', dest='pull_policy',
        choices=_PULL_POLICIES, help='imagePullPolicy of the pods: '
        f"{', '.join(_PULL_POLICIES)} (default: Kubernetes' default)")
    group.add_argument(
        '--image-pull-secret', metavar='NAME', dest='pull_secrets',
        type=_secret, action='append', default=[], help='Secret with the '
        'password of the registry; has to exist in each namespace with '
        'BMCs; may be repeated')
    group.add_argument(
        '--pod-user', metavar='auto|none|UID', type=_user, default=AUTO,
        help='user and group id of the pods of BMCs; none to let the cluster '
        'assign them, as OpenShift does by its security context constraints; '
        f'{AUTO} for none on OpenShift, else {deployments.USER} (default: '
        '%(default)s)')
    group.add_argument(
        '--pod-label', metavar='KEY=VALUE', dest='pod_labels', type=_label,
        action='append', default=[], help='label of the pods of BMCs; may be '
        'repeated (default: those that exclude pods from the service meshes '
        'Istio and Linkerd, which do not carry UDP; '
        'sidecar.istio.io/inject=true, for example, replaces one)')
    group.add_argument(
        '--pod-annotation', metavar='KEY=VALUE', dest='pod_annotations',
        type=_annotation, action='append', default=[], help='annotation of '
        'the pods of BMCs, likewise')
    group.add_argument(
        '--allowed-images', metavar='REPOSITORY', type=_image,
        action='append', default=[], help='images a BMC may name: a '
        'repository, all below one (registry.test/lab/*), or * for any; may '
        'be repeated. What runs in a BMC can read the Secrets that '
        'the BMC names (default: the repository of --image)')
    group.add_argument(
        '--bmc-cpu', metavar='QUANTITY', type=_cpu, default=deployments.CPU,
        help='CPU request of the pods of BMCs without spec.resources: their '
        'share while guests take all CPU of a node; a shared pod requests '
        '1m more for each 5 BMCs (default: %(default)s)')
    group.add_argument(
        '--max-unavailable', metavar='N', type=_count,
        default=MAX_UNAVAILABLE, help='number of pods of BMCs that may be '
        'not ready while a new image is rolled out; a shared pod counts as '
        'one (default: %(default)s)')
    group.add_argument(
        '--default-placement', metavar='PLACEMENT',
        choices=(placement.PER_VM, placement.SHARED),
        default=placement.PER_VM, help='where BMCs run that name no '
        f'placement: {placement.PER_VM}, each in a pod of its own, or '
        f'{placement.SHARED}, in pods that the BMCs of a namespace share '
        '(default: %(default)s)')
    group.add_argument(
        '--bmcs-per-pod', metavar='N', type=_bmcs,
        default=placement.BMCS_PER_POD, help='number of BMCs in a shared pod, '
        f'1 to {placement.MAX_BMCS_PER_POD} (default: %(default)s). BMCs stay '
        'in their pod when it changes')
    group.add_argument(
        '--auto-create', metavar='SELECTOR', type=_selector, help='create a '
        'BMC for each VirtualMachine whose labels match, such as bmc=auto, '
        'and delete it when they do not match any more')

    group.add_argument(
        '--upload-proxy-url', metavar='URL', type=_url, help="CDI's upload "
        'proxy as pods reach it, such as https://cdi-uploadproxy.cdi.svc, '
        'for virtual media that CDI cannot fetch itself (default: none, '
        'nothing is uploaded)')
    group.add_argument(
        '--upload-proxy-ca', metavar='FILE', type=certificates,
        help='CA certificates that the upload proxy is checked against, PEM '
        '(default: those of the image)')

    group.add_argument(
        '--denied-hosts', metavar='HOST', type=_denied, action='append',
        default=[], help='name, *.domain, address, network or ADDRESS:PORT '
        'from which BMCs may not load images, and to which they may not send '
        'events, whatever a BMC allows; may be repeated. The API server and '
        'the Services of the cluster are always among them')
    group.add_argument(
        '--denied-hosts-except', metavar='HOST', dest='denied_except',
        type=_host_entry, action='append', default=[], help='exception from '
        'them, such as the Service of an image server '
        '(images.default.svc), or * for all; may be repeated')

    group = result.add_argument_group('Metal3')
    group.add_argument(
        '--bare-metal-hosts', metavar='SELECTOR', type=_selector,
        help='create a BareMetalHost of Metal3 for each VirtualMachineBMC '
        'whose labels match, such as metal3=true')
    group.add_argument(
        '--host-label', metavar='KEY', dest='host_labels', type=_label_name,
        action='append', default=[], help='copy this label of the VMs to '
        'their BareMetalHosts; example.test/* for all labels of a prefix; may '
        'be repeated')
    group.add_argument(
        '--host-failure-domain-label', metavar='KEY',
        dest='host_failure_domain', type=_label_name,
        default=Options.host_failure_domain, help='label of the '
        'VMs with the failure domain of their BareMetalHosts (default: '
        '%(default)s)')
    group.add_argument(
        '--host-disable-certificate-verification', dest='host_verify',
        action='store_false', help='have Ironic not verify the certificates '
        'of the BMCs of BareMetalHosts; affects those created from then on, '
        'as Metal3 gives Ironic no later change of it')
    group.add_argument(
        '--host-external-address', dest='host_external', action='store_true',
        help='give BareMetalHosts the address of a load balancer or a Route, '
        'for an Ironic outside of this cluster (default: the name of the '
        "BMC's Service, or the address of its load balancer)")
    group.add_argument(
        '--claim-templates', metavar='NAMESPACE', type=namespace,
        help='create a VM with a BareMetalHost for each HostClaim of Metal3 '
        'for which no host is free, from the VMs in this namespace with the '
        "annotation bmc.kubevirt.io/claim-template=true, if the namespace's "
        'HostDeployPolicies admit the claim; delete the VM with the claim')
    group.add_argument(
        '--claim-limit', metavar='N', type=_count,
        default=Options.claim_limit, help='VMs '
        'that the claims of one namespace may have (default: %(default)s). '
        'The annotation bmc.kubevirt.io/claim-limit of a template limits its '
        'VMs')

    group = result.add_argument_group('replicas')
    group.add_argument(
        '--no-leader-election', dest='leader_election',
        action='store_false', help='work without the Lease; run one such '
        'process only, as two would undo the changes of each other')
    group.add_argument(
        '--lease-seconds', metavar='S', type=_lease, default=LEASE_SECONDS,
        help='seconds without a renewal of the Lease after which another '
        'replica takes it (default: %(default)s)')

    group = result.add_argument_group('metrics and logs')
    group.add_argument(
        '--metrics-address', metavar='ADDRESS:PORT', type=_address,
        default=endpoints.bracketed(
            environ.get('POD_IP') or '127.0.0.1') + f':{PORT}', dest='listen',
        help='address of /metrics, /livez and /readyz, which need no '
        'password; port 0 for a free one, which the log tells; an '
        f'empty text to serve none (default: port {PORT} of the pod this '
        'runs in, else of 127.0.0.1)')
    group.add_argument(
        '--log-format', choices=('json', 'plain'), default='json',
        help='one JSON object per line, or text (default: %(default)s)')
    group.add_argument(
        '--log-level', choices=LEVELS, default='info',
        help='(default: %(default)s)')
    return result


def selector_labels(selector: str, negated: bool = False) -> set[str]:
    """List the names of the labels that objects need to match a selector.

    :param selector: as `parse` accepts it
    :param negated: whether to list those that they must not have, too
    """
    before = r'\s*!?\s*' if negated else r'\s*'
    matches = (re.match(f'{before}({LABEL_KEY})', requirement)
               for requirement in re.split(_BETWEEN, selector))
    return {match[1] for match in matches if match}


def unmet(selector: str, labels: abc.Mapping[str, str]) -> str | None:
    """Find what keeps labels from matching a selector.

    :param selector: as `parse` accepts it
    :returns: its first requirement that they do not meet; None if they match
    """
    for requirement in re.split(_BETWEEN, selector):
        match = re.fullmatch(
            rf'\s*(!?)\s*({LABEL_KEY})\s*(==?|!=|in\b|notin\b|)\s*(.*?)\s*',
            requirement)
        assert match is not None
        negated, key, operator, rest = match.groups()
        meets = key in labels
        if operator:
            meets = labels.get(key) in re.split(r'\s*,\s*', rest.strip('() '))
        if meets == bool(negated or operator in ('!=', 'notin')):
            return requirement.strip()
    return None


def matches(selector: str, obj: objects.AnyObject) -> bool:
    """Tell whether the labels of an object match a selector.

    :param selector: as `parse` accepts it
    """
    return unmet(selector, obj['metadata'].get('labels') or {}) is None


def version() -> str:
    """Return the version of the installed package."""
    return metadata.version('sushy-kubevirt')


def add_cluster(group: argparse._ActionsContainer) -> None:
    """Add the options that name the cluster to a parser or a group."""
    group.add_argument(
        '--kubeconfig', metavar='PATH', help='kubeconfig of the cluster '
        '(default: the first that exists of $KUBECONFIG, the account of the '
        'pod this runs in, ~/.kube/config)')
    group.add_argument(
        '--context', metavar='NAME', help='context of the kubeconfig '
        '(default: its current one)')


def add_system_namespace(group: argparse._ActionsContainer,
                         environ: abc.Mapping[str, str]) -> None:
    """Add the option that names the operator's own namespace.

    :param environ: as in `parse`
    """
    group.add_argument(
        '--system-namespace', metavar='NAME', type=namespace,
        default=environ.get('POD_NAMESPACE') or SYSTEM_NAMESPACE,
        help='namespace of the Lease and the certificate authority '
        '(default: the namespace of the pod this runs in, else '
        f'{SYSTEM_NAMESPACE})')


def _checked(pattern: str, problem: str,
             read: abc.Callable[[re.Match[str]], T]) -> abc.Callable[[str], T]:
    """Make a check of an option's value.

    :param problem: says of another value what is wrong
    :param read: returns the value of a match
    """
    def check(text: str) -> T:
        match = re.fullmatch(pattern, text, re.DOTALL)
        if match:
            return read(match)
        raise argparse.ArgumentTypeError(f'{text!r} {problem}')
    return check


def _text(match: re.Match[str]) -> str:
    return match[0]


def _pair(match: re.Match[str]) -> tuple[str, str]:
    return match[1], match[2]


def _number(low: int, high: int, problem: str) -> abc.Callable[[str], int]:
    """Make a check of a number, which no zero begins."""
    def check(text: str) -> int:
        if re.fullmatch('[1-9][0-9]{0,9}', text) and (
                low <= int(text) <= high):
            return int(text)
        raise argparse.ArgumentTypeError(f'{text!r} {problem}')
    return check


#: Checks a name of a namespace.
namespace = _checked(_NAMESPACE, 'is not a name of a namespace', _text)
_image = _checked(r'\S+', 'is not an image', _text)
_secret = _checked(
    rf'(?!.{{254}}){_NAMESPACE}(?:\.{_NAMESPACE})*',
    'is not a name of a Secret', _text)
_label = _checked(
    f'({LABEL_KEY})=((?:{LABEL_VALUE})?)',
    'is not a label, such as example.com/team=lab', _pair)
_label_name = _checked(
    rf'{LABEL_KEY}|{_PREFIX}\*', 'is not the name of a label, such as '
    'example.com/rack or example.com/*', _text)
_annotation = _checked(
    f'({LABEL_KEY})=(.*)',
    'is not an annotation, such as example.com/note=text', _pair)
_url = _checked(
    r'(https?://[^\s/?#@]+)/?',
    'is not a URL such as https://cdi-uploadproxy.cdi.svc',
    lambda match: match[1])
_count = _number(1, 999999, 'is not a count of 1 or more')
_bmcs = _number(1, placement.MAX_BMCS_PER_POD, 'is not a number of 1 to '
                f'{placement.MAX_BMCS_PER_POD}')
# The Lease holds whole seconds, and clients must have time to renew it.
_lease = _number(3, 3600, 'is not a whole number of seconds, 3 to 3600')
_uid = _number(1, 2 ** 31 - 1,
               f'is none of {AUTO}, none and an id from 1 to 2147483647')


def _user(text: str) -> int | str | None:
    if text == AUTO:
        return AUTO
    return None if text == 'none' else _uid(text)


def _denied(text: str) -> str:
    return text if url_policy.address_and_port(text) else _host_entry(text)


def _host_entry(text: str) -> str:
    try:
        url_policy.network(text)
        return text
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def certificates(path: str) -> str:
    """Read a file with certificates.

    :returns: PEM text
    :raises: argparse.ArgumentTypeError
    """
    try:
        with open(path) as stream:
            text = stream.read()
        x509.load_pem_x509_certificates(text.encode())
        return text
    except (OSError, ValueError) as e:
        reason = getattr(e, 'strerror', None) or e
        raise argparse.ArgumentTypeError(
            f'{path} has no certificates: {reason}') from None


def _cpu(text: str) -> str:
    value = quantity.to_decimal(text)
    if value and value >= 0:
        return text
    raise argparse.ArgumentTypeError(
        f'{text!r} is not a quantity of CPU more than 0, such as 30m')


def _selector(text: str) -> str:
    if text.strip() and all(_REQUIREMENT.fullmatch(part)
                            for part in re.split(_BETWEEN, text)):
        return text.strip()
    raise argparse.ArgumentTypeError(
        f'{text!r} is not a label selector, such as bmc=auto or '
        '"bmc in (a, b)"')


def _address(text: str) -> tuple[str, int] | None:
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
            f'{text!r} is not ADDRESS:PORT, such as 127.0.0.1:{PORT}, with an '
            'IP address') from None
