# SPDX-License-Identifier: Apache-2.0
import setuptools

# pbr finds files other than modules in git only, which a build of an image has
# not.
setuptools.setup(setup_requires=['pbr>=6.0.0'], pbr=True,
                 package_data={'sushy_kubevirt.web': ['static/*']})
