# SPDX-License-Identifier: Apache-2.0
"""A machine with virtual media."""

from tests.unit.redfish import base
from tests.unit.redfish import fakes

URL = 'http://host/a.iso'


class MediaTestCase(base.RedfishTestCase):
    """Test case whose ``path`` is that of the CD drive."""

    ROOT = 'Systems'

    def setUp(self):
        super().setUp()
        self.path = f'/redfish/v1/{self.ROOT}/{fakes.A}/VirtualMedia/Cd'

    def put_medium(self, **changes):
        """Put a medium into the drive."""
        medium = fakes.MEDIUM._replace(**changes)
        self.machine.media['Cd'] = medium
        return medium

    def inserted(self):
        """Return the sources of the inserts."""
        return [call[2] for call in self.machine.calls
                if call[0] == 'insert_media']
