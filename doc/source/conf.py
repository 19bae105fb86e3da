# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the documentation; run by ``tox -e docs``."""

extensions = ['openstackdocstheme']

project = 'sushy-kubevirt'
copyright = 'sushy-kubevirt developers'
master_doc = 'index'
source_suffix = '.rst'
exclude_patterns = []

pygments_style = 'native'
html_theme = 'openstackdocs'
html_theme_options = {'display_global_toc_section': True}

# The project has no repository at OpenStack's: no links to sources or bugs.
openstackdocs_auto_name = False
openstackdocs_auto_version = False
openstackdocs_use_storyboard = False
openstackdocs_pdf_link = False

smartquotes = False
