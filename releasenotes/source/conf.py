# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the release notes; run by ``tox -e releasenotes``."""

extensions = ['reno.sphinxext']

project = 'sushy-kubevirt'
copyright = 'sushy-kubevirt developers'
master_doc = 'index'
source_suffix = '.rst'

html_theme = 'alabaster'
html_copy_source = False

smartquotes = False
