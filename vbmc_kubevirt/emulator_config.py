# SPDX-License-Identifier: Apache-2.0
"""Config file of sushy-emulator in a BMC's pod.

It is executed as such, by the path of this module. Its options are data, see
`options_file`.
"""

import os

from sushy_kubevirt.emulator import plugin
from sushy_kubevirt.pod import options_file

plugin.enable()
globals().update(options_file.config(os.environ))
