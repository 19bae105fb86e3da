# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the release notes; run by ``tox -e releasenotes``."""

extensions = ['openstackdocstheme', 'reno.sphinxext']

project = 'sushy-kubevirt'
copyright = 'sushy-kubevirt developers'
master_doc = 'index'
source_suffix = '.rst'

pygments_style = 'native'
html_theme = 'openstackdocs'

openstackdocs_auto_name = False
openstackdocs_auto_version = False

smartquotes = False
