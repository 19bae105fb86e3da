# SPDX-License-Identifier: Apache-2.0
"""The manifests that are installed with this program, or lie in its checkout.

They state what an installation of this version contains.
"""

from __future__ import annotations

from collections import abc
import os
import pathlib
import site
import sysconfig
import typing

import yaml

from sushy_kubevirt.kube import objects

_INSTALLED, _CHECKOUT = 'etc/sushy-kubevirt/kubernetes', 'etc/kubernetes'


def places() -> tuple[pathlib.Path, pathlib.Path]:
    """List where the manifests may be.

    :returns: where ``data_files`` of setup.cfg are installed with it, by
        ``pip install --user`` elsewhere than usually, and etc/ of a checkout
    """
    packages = pathlib.Path(__file__).parents[3]
    data = (site.getuserbase() if packages == pathlib.Path(
        site.getusersitepackages()) else sysconfig.get_path('data'))
    return pathlib.Path(data) / _INSTALLED, packages / _CHECKOUT


FOLDERS = places()

DEFINITION = 'crd/virtualmachinebmc.yaml'
ADMISSION = 'base/admission.yaml'
ACCESS = 'base/access.yaml'

#: The operator's rights in all namespaces, whatever it serves.
NETWORKS = 'base/networks.yaml'

#: Patches that add rights to those of `ACCESS`.
AUTO_CREATE = 'components/auto-create/access.yaml'
OPENSHIFT = 'components/openshift/access.yaml'


class Missing(OSError):
    """A manifest is not there.

    :cvar remedy: what to do
    """

    remedy = ('Install the package again, with its data files: pip install '
              '--force-reinstall --no-deps; or run the program of a clone.')


def read(path: str) -> list[objects.Json]:
    """Read a manifest.

    :param path: such as `DEFINITION`
    :returns: its objects
    :raises: `Missing` if no folder has it
    """
    for folder in FOLDERS:
        try:
            text = (folder / path).read_text()
        except OSError:
            continue
        return [obj for obj in yaml.safe_load_all(text) if obj]
    raise Missing(
        f'the manifest {path} is in none of '
        + ', '.join(map(str, FOLDERS)))


def where(path: str = '') -> str:
    """Tell an administrator where manifests are.

    :param path: of a file or folder in the folder of the manifests
    :returns: text to insert in a sentence: a path; in a pod, whose files
        kubectl elsewhere does not see, what it is relative to
    """
    if 'KUBERNETES_SERVICE_HOST' in os.environ:
        return (f'{pathlib.PurePath(_CHECKOUT, path)} (in a clone of this '
                f'version; {_INSTALLED} where its package is installed)')
    folder = next((folder for folder in FOLDERS
                   if (folder / DEFINITION).is_file()),
                  pathlib.Path(_CHECKOUT))
    return str(folder / path)


def added_rules(path: str) -> list[objects.Json]:
    """Read the rules that a patch of the operator's ClusterRole adds.

    :param path: such as `AUTO_CREATE`
    """
    # A JSON patch: no object.
    operations: typing.Any
    [operations] = read(path)
    return [operation['value'] for operation in operations]


def of_kind(bodies: abc.Iterable[objects.Json],
            kind: str) -> list[objects.Json]:
    """Return the objects of a kind."""
    return [body for body in bodies if body['kind'] == kind]
