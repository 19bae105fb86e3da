# SPDX-License-Identifier: Apache-2.0
"""The Route of a BMC: Redfish at a host name of an OpenShift ingress
controller.

The API server generates the host from name and namespace of the Route. The
operator never asks for a host: it has more rights than the authors of BMCs,
who could otherwise take the hosts of others.

Source: openshift/api, route/v1/types.go (August 2026).
"""

from __future__ import annotations

from collections import abc
import re
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator import naming
from sushy_kubevirt.operator import network

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator import spec

#: Values of ``route.termination``. The client's TLS ends at the BMC, or at the
#: ingress controller, which opens another connection to the BMC.
PASSTHROUGH, REENCRYPT = 'passthrough', 'reencrypt'

#: Why a BMC cannot have a Route: the cluster does not serve Routes, or the
#: operator may not list them.
MISSING, FORBIDDEN = 'missing', 'forbidden'

#: The operator has not listed Routes since it started: BMCs that have one
#: wait, as their certificates would be issued again without its host.
UNLISTED = 'unlisted'

#: Maximum length of a host name (RFC 1035, section 2.3.4).
_MAX_NAME_LENGTH = 253


def route(bmc: spec.Bmc, authority: str) -> objects.Json:
    """Make the Route of a BMC that has one.

    :param authority: PEM text of the CA certificates of the BMC's
        certificate; '' if they are not known: the ingress controller then
        verifies with those that it trusts by itself
    """
    wanted = bmc.route
    assert wanted is not None
    metadata = naming.metadata(bmc, naming.route(bmc))
    metadata['labels'] = {**wanted.labels, **metadata['labels']}
    annotations = network.permitted(wanted.annotations)
    if annotations:
        metadata['annotations'] = annotations
    tls = {'termination': wanted.termination}
    if wanted.termination == REENCRYPT and authority:
        tls['destinationCACertificate'] = authority
    return {'apiVersion': bmc_resources.ROUTE.api_version,
            'kind': bmc_resources.ROUTE.kind,
            'metadata': metadata, 'spec': {
                'to': {'kind': 'Service', 'name': naming.base(bmc.name)},
                'port': {'targetPort': deployments.REDFISH}, 'tls': tls}}


def hosts(live: objects.Json | None) -> list[str]:
    """List the hosts at which ingress controllers serve a Route.

    :param live: the Route as the cluster has it
    :returns: without duplicates
    """
    return list(dict.fromkeys(
        ingress['host'] for ingress in _ingress(live)
        if ingress.get('host') and _admitted(ingress).get(
            'status') == 'True'))


def generated_hosts(bmc: spec.Bmc, live: objects.Json | None) -> list[str]:
    """List those of `hosts` that the API server may have generated.

    Users can set others: OpenShift's roles ``edit`` and ``admin`` permit to
    create Routes with any host, and ``admin`` to write their status
    (bootstrappolicy/policy.go of openshift-apiserver). The host of another
    server must not get into a certificate whose key these users can read.

    :param live: the Route as the cluster has it
    :returns: without duplicates
    """
    # GenerateHostname in openshift/library-go,
    # pkg/route/hostassignment/plugin.go.
    generated = re.compile(re.escape(
        f'{naming.route(bmc)}-{bmc.namespace}') + r'(\.[a-z0-9-]{1,63})+')
    return [host for host in hosts(live)
            if len(host) <= _MAX_NAME_LENGTH and generated.fullmatch(host)]


def rejection(live: objects.Json | None) -> str:
    """Find why ingress controllers do not serve a Route.

    :param live: the Route as the cluster has it
    :returns: a sentence with its reason; '' if none has rejected it
    """
    for ingress in _ingress(live):
        condition = _admitted(ingress)
        if condition.get('status') == 'False':
            return (f"{condition.get('reason', '')}: "
                    f"{condition.get('message', '')}")
    return ''


def _ingress(live: objects.Json | None) -> abc.Sequence[objects.Json]:
    return ((live or {}).get('status') or {}).get('ingress') or ()


def _admitted(ingress: objects.Json) -> objects.Json:
    return next((condition for condition in ingress.get('conditions') or ()
                 if condition.get('type') == 'Admitted'), {})
