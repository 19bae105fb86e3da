# SPDX-License-Identifier: Apache-2.0
"""Types of virtual media: devices, sources, media, certificates."""

from __future__ import annotations

import enum
import typing
from urllib import parse

if typing.TYPE_CHECKING:
    from collections import abc


class Kind(enum.Enum):
    """Kind of a device, a value of Redfish's ``MediaTypes``."""

    CD = 'CD'
    """A CD-ROM drive."""

    USB_STICK = 'USBStick'
    """A disk on the USB bus."""


class Device(typing.NamedTuple):
    """A device that a medium can be inserted into.

    :param id: ``Cd`` or ``USBStick``; ``HttpBoot`` for the drive of HTTP
        boot, which Redfish clients do not see as a device
    """

    id: str
    kind: Kind


#: The devices every machine has.
CD = Device('Cd', Kind.CD)
USB_STICK = Device('USBStick', Kind.USB_STICK)

#: The drive of HTTP boot, see `boot.Target.UEFI_HTTP`.
HTTP_BOOT = Device('HttpBoot', Kind.CD)

DEVICES = (CD, USB_STICK)

#: Those whose media are in the record.
ALL_DEVICES = (*DEVICES, HTTP_BOOT)


class State(enum.Enum):
    """State of a medium."""

    WAITING = 'Waiting'
    """CDI has not started to fetch the image."""

    IMPORTING = 'Importing'
    """The image is being fetched."""

    READY = 'Ready'
    """The image is complete; the guest has it, or gets it at its next start.
    """

    EJECTING = 'Ejecting'
    """Ejected, but the guest still has it: it may have locked the tray."""

    FAILED = 'Failed'
    """The image cannot be fetched; `Medium` has the reason and message."""


#: Scheme of the URL of an image that a client has uploaded; the rest is its
#: file name, quoted.
UPLOAD = 'upload:'


class ClientImage:
    """An image that a client sends while it is read.

    :param name: file name
    :param read: fills a buffer and returns the number of bytes, 0 at the end
        of the image
    :param authorized: tells whether the client may still send it, called
        every few seconds; may block
    :ivar url: URL that stands for it
    :ivar started: whether reading has begun, so that it cannot start over
    """

    def __init__(self, name: str, read: abc.Callable[[memoryview], int],
                 authorized: abc.Callable[[], bool] = lambda: True) -> None:
        self.name = name
        self.authorized = authorized
        self.url = UPLOAD + parse.quote(name, safe='')
        self.started = False
        self._read = read

    def readinto(self, buffer: memoryview) -> int:
        """Read a piece; see ``read``."""
        self.started = True
        return self._read(buffer)


class Source(typing.NamedTuple):
    """An image to be inserted, as a client describes it.

    :param url: http or https URL, or that of a `ClientImage`
    :param username: for the image server
    :param password: for the image server; never logged or shown
    :param write_protected: whether the guest may not write to it
    :param verify: whether the server's certificate is checked; None for
        the setting of the device (`machine.Machine.media_verify`)
    :param method: Redfish's ``TransferMethod``: ``Stream`` or ``Upload``
    :param protocol: Redfish's ``TransferProtocolType``: ``HTTP``, ``HTTPS``;
        None if the client did not send it
    """

    url: str
    username: str = ''
    password: str = ''
    write_protected: bool = True
    verify: bool | None = None
    method: str | None = None
    protocol: str | None = None

    def __repr__(self) -> str:
        return f'Source({self.url!r}, {self.username!r})'   # no password


class Medium(typing.NamedTuple):
    """A medium in a device.

    :param url: URL of the image, without credentials
    :param write_protected: whether the guest may not write to it
    :param progress: per cent, 0 to 100; None while it is not known
    :param reason: CDI's or KubeVirt's reason for the state, one word; '' for
        none
    :param message: text that explains the reason
    :param pending_restart: True if the running guest does not see the medium;
        it is in the VM's spec for the next start
    :param restart_cause: sentences that say why, and what could be done
    :param data_volume: name of the DataVolume
    :param task: ID of the import's task, unique to each attempt
    :param since: when it was inserted, ISO 8601 in UTC
    :param method: see `Source`
    :param protocol: see `Source`
    :param verify: whether the server's certificate is checked
    """

    url: str
    write_protected: bool
    state: State
    progress: float | None = None
    reason: str = ''
    message: str = ''
    pending_restart: bool = False
    restart_cause: str = ''
    data_volume: str = ''
    task: str = ''
    since: str = ''
    method: str | None = None
    protocol: str | None = None
    verify: bool = True

    @property
    def image_name(self) -> str:
        """The last part of the URL's path; the host if it has none."""
        parts = parse.urlsplit(self.url)
        return parse.unquote(parts.path.rstrip('/').rpartition('/')[2]) or (
            parts.hostname or '')

    @property
    def uploaded(self) -> bool:
        """Whether a client has uploaded the image, which has no server."""
        return self.url.startswith(UPLOAD)


class Certificate(typing.NamedTuple):
    """A certificate that image servers are verified against.

    :param id: its ID within the device: ``1``, ``2`` …
    :param pem: the certificate, PEM
    """

    id: str
    pem: str
