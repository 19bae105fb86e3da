# SPDX-License-Identifier: Apache-2.0
"""The manifests that are installed with this program, or lie in its checkout.

They state what an installation of this version contains.
"""

import pathlib
import sysconfig

import yaml

#: Where ``data_files`` of setup.cfg are installed, and etc/ of a checkout.
FOLDERS = (
    pathlib.Path(sysconfig.get_path('data')) / 'etc/sushy-kubevirt/kubernetes',
    pathlib.Path(__file__).parents[3] / 'etc/kubernetes')

DEFINITION = 'crd/virtualmachinebmc.yaml'
ADMISSION = 'base/admission.yaml'
ACCESS = 'base/access.yaml'

#: Patches that add rights to those of `ACCESS`.
AUTO_CREATE = 'components/auto-create/access.yaml'
OPENSHIFT = 'components/openshift/access.yaml'


def read(path, folders=FOLDERS):
    """Read a manifest.

    :param path: such as `DEFINITION`
    :param folders: tuple of `pathlib.Path` to search
    :returns: list of dicts, its objects
    :raises: OSError if no folder has it
    """
    for folder in folders:
        try:
            text = (folder / path).read_text()
        except OSError:
            continue
        return [one for one in yaml.safe_load_all(text) if one]
    raise FileNotFoundError(
        f'The manifest {path} is in none of '
        + ', '.join(map(str, folders)))


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
