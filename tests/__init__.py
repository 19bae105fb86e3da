# SPDX-License-Identifier: Apache-2.0
import os

# oslotest reads these: keep what a test prints and logs with its result, to be
# shown if it fails.
for _name in 'OS_STDOUT_CAPTURE', 'OS_STDERR_CAPTURE', 'OS_LOG_CAPTURE':
    os.environ.setdefault(_name, '1')
