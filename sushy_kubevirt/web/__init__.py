# SPDX-License-Identifier: Apache-2.0
"""The web page of a BMC: the files in ``static``, which browsers run.

`sushy_kubevirt.redfish.resources.web_page` serves them.
"""
