# SPDX-License-Identifier: Apache-2.0
"""Errors of downloads."""


class ImportFailedError(Exception):
    """An import failed; has the message of CDI's importer.

    :param fatal: whether a retry cannot succeed.
    """

    def __init__(self, message, fatal=False):
        super().__init__(message)
        self.fatal = fatal


class StoppedError(Exception):
    """The download was stopped with :meth:`download.Download.stop`."""
