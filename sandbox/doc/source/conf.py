# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the documentation; run by ``tox -e docs``."""

project = 'kubevirt-sandbox'
copyright = 'sushy-kubevirt developers'
master_doc = 'index'
source_suffix = '.rst'

# Not OpenStack's own theme: that says on each page that it is OpenStack's,
# under another licence.
html_theme = 'alabaster'
html_theme_options = {
    'description': 'A KubeVirt API for tests',
    'fixed_sidebar': True,
    'page_width': '1100px',
}
html_copy_source = False

smartquotes = False
