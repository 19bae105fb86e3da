# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes the documentation; run by ``tox -e docs``."""

project = 'sushy-kubevirt'
copyright = 'sushy-kubevirt developers'
master_doc = 'index'
source_suffix = '.rst'

# Not OpenStack's own theme: that says on each page that it is OpenStack's,
# under another licence.
html_theme = 'alabaster'
html_theme_options = {
    'description': 'Redfish and IPMI for KubeVirt virtual machines',
    'fixed_sidebar': True,
    'page_width': '1100px',
}
html_copy_source = False
# Plots of the benchmarks.
html_static_path = ['_static']

smartquotes = False
