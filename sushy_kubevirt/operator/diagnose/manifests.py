# SPDX-License-Identifier: Apache-2.0
"""The manifests that are installed with this program, or lie in its checkout.

They state what an installation of this version contains.
"""

from __future__ import annotations

import os
import pathlib
import site
import sysconfig

import yaml

_INSTALLED, _CHECKOUT = 'etc/sushy-kubevirt/kubernetes', 'etc/kubernetes'


def places(module=__file__):
    """List where the manifests may be.

    :param module: path of a module of this program
    :returns: tuple of `pathlib.Path`: where ``data_files`` of setup.cfg are
        installed with it, by ``pip install --user`` elsewhere than usually,
        and etc/ of a checkout
    """
    packages = pathlib.Path(module).parents[3]
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


def read(path, folders=FOLDERS):
    """Read a manifest.

    :param path: such as `DEFINITION`
    :param folders: tuple of `pathlib.Path` to search
    :returns: list of dicts, its objects
    :raises: `Missing` if no folder has it
    """
    for folder in folders:
        try:
            text = (folder / path).read_text()
        except OSError:
            continue
        return [one for one in yaml.safe_load_all(text) if one]
    raise Missing(
        f'the manifest {path} is in none of '
        + ', '.join(map(str, folders)))


def where(path: str = '', folders=FOLDERS):
    """Tell an administrator where manifests are.

    :param path: of a file or folder in the folder of the manifests
    :param folders: tuple of `pathlib.Path` to search
    :returns: text to insert in a sentence: a path; in a pod, whose files
        kubectl elsewhere does not see, what it is relative to
    """
    if 'KUBERNETES_SERVICE_HOST' in os.environ:
        return (f'{pathlib.PurePath(_CHECKOUT, path)} (in a clone of this '
                f'version; {_INSTALLED} where its package is installed)')
    found = next((one for one in folders if (one / DEFINITION).is_file()),
                 pathlib.Path(_CHECKOUT))
    return str(found / path)


def added_rules(path):
    """Read the rules that a patch of the operator's ClusterRole adds.

    :param path: such as `AUTO_CREATE`
    :returns: list of dicts
    """
    [operations] = read(path)
    return [one['value'] for one in operations]


def of_kind(objects, kind):
    """:returns: list of the objects of a kind"""
    return [one for one in objects if one['kind'] == kind]
