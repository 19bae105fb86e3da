# SPDX-License-Identifier: Apache-2.0
"""Checks whether the images of the operator and of a BMC have this version.

The tags of released images are versions. What another tag, or a digest, stands
for is not known here.
"""

from __future__ import annotations

from collections import abc
import re
import typing

from sushy_kubevirt.kube import objects
from sushy_kubevirt.operator import bmc_resources
from sushy_kubevirt.operator import command_line
from sushy_kubevirt.operator import deployments
from sushy_kubevirt.operator.diagnose import findings
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.operator.diagnose import bmc as bmcs
    from sushy_kubevirt.operator.diagnose import reader as readers

AREA = 'Images'


def number(version: str) -> tuple[tuple[int, ...], str] | None:
    """Parse a version of this project.

    :param version: such as ``1.2.0``, ``v1.2`` or ``1.2.0.0rc1``
    :returns: numbers without zeros at the end, and the rest, which are equal
        for equal versions; None if it is no version
    """
    match = re.fullmatch(r'v?(\d+(?:\.\d+)+)((?:[-+._]?[0-9A-Za-z]+)*)',
                         version)
    if not match:
        return None
    numbers = re.sub(r'(\.0+)+$', '', match[1])
    return (tuple(map(int, numbers.split('.'))),
            re.sub('[-+._]', '', match[2]).lower())


def tag(image: str) -> str:
    """Return tag of an image's name; '' if it has a digest or no tag."""
    return '' if '@' in image else image.rpartition('/')[2].partition(':')[2]


def operator(reader: readers.Reader,
             namespace: str) -> abc.Iterator[findings.Finding]:
    """Check the image of the operator's Deployment.

    :param namespace: the operator's
    :returns: none without a Deployment, as when the operator runs outside of
        the cluster
    """
    deployment = reader.get(bmc_resources.DEPLOYMENT, namespace,
                            naming.OPERATOR)
    if deployment is not None:
        yield from _compare(
            'the operator', deployment,
            "Use the program of the operator's version, which is in its pod, "
            'or upgrade the operator: newTag of its image in the manifests, '
            'and kubectl apply -k; or helm upgrade.')


def bmc(bmc: bmcs.Bmc) -> abc.Iterator[findings.Finding]:
    """Check the image of a BMC's Deployment."""
    deployment = bmc.deployment
    if deployment:
        yield from _compare(
            'its pod', deployment,
            'Change spec.image of the BMC.' if bmc.spec.image else
            'The operator rolls out the image that it was given (--image): '
            'give it that of the same version, newTag in the manifests or '
            'images.emulator.tag of the chart.')


def _compare(subject: str, deployment: objects.Json, remedy: str
             ) -> abc.Iterator[findings.Finding]:
    own = command_line.version()
    for image in dict.fromkeys(filter(None, deployments.images(deployment))):
        given = number(tag(image))
        if given is not None and given != number(own):
            yield findings.warning(
                'ImageOfAnotherVersion',
                f'The image of {subject} is {image}, and this program has '
                f'version {own}.', remedy)
        else:
            yield findings.ok('ImageFound',
                              f'The image of {subject} is {image}.')
