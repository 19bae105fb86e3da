# SPDX-License-Identifier: Apache-2.0
"""What virtual media are: devices, what is asked for, what is there.

Words alone; what is done about them is in the modules beside this one.
"""

import dataclasses
import enum


class Kind(enum.Enum):
    """What a device is to the guest, in Redfish's ``MediaTypes``."""

    CD = 'CD'
    """A CD-ROM drive."""

    USB_STICK = 'USBStick'
    """A disk on the USB bus."""


@dataclasses.dataclass(frozen=True)
class Device:
    """Something a medium can be put into.

    :param id: its name: ``Cd``, ``USBStick``; ``HttpBoot`` for the drive of
        HTTP boot, which is no device of its own to a client
    :param kind: a `Kind`
    """

    id: str
    kind: Kind


#: The devices every machine has.
CD = Device('Cd', Kind.CD)
USB_STICK = Device('USBStick', Kind.USB_STICK)

#: The drive that HTTP boot fills, see `boot.Target.UEFI_HTTP`.
HTTP_BOOT = Device('HttpBoot', Kind.CD)

DEVICES = (CD, USB_STICK)


class State(enum.Enum):
    """How far a medium is."""

    WAITING = 'Waiting'
    """Asked for; CDI has not begun to fetch it."""

    IMPORTING = 'Importing'
    """It is being fetched."""

    READY = 'Ready'
    """It is complete: the guest has it, or the next one will."""

    FAILED = 'Failed'
    """It cannot be fetched: `Medium.reason` and `Medium.message` say why."""


@dataclasses.dataclass(frozen=True)
class Source:
    """What somebody wants in a device.

    :param url: http or https, without credentials in it
    :param username: for the server of the image
    :param password: the same; never shown
    :param write_protected: whether the guest may write to it
    :param verify: whether the server's certificate is checked; None for
        what the device says (`machine.Machine.media_verify`)
    :param method: Redfish's ``TransferMethod``: ``Stream`` or ``Upload``
    :param protocol: Redfish's ``TransferProtocolType``: ``HTTP``, ``HTTPS``;
        None if the client did not say
    """

    url: str
    username: str = ''
    password: str = dataclasses.field(default='', repr=False)
    write_protected: bool = True
    verify: bool | None = None
    method: str | None = None
    protocol: str | None = None


@dataclasses.dataclass(frozen=True)
class Medium:
    """What is in a device.

    :param url: where it comes from, without credentials
    :param image_name: the last part of the URL's path
    :param write_protected: whether the guest may not write to it
    :param state: a `State`
    :param progress: per cent, 0 to 100; None while it is not known
    :param reason: one word of CDI's or KubeVirt's about the state; '' if
        there is nothing to say
    :param message: the sentence that belongs to it
    :param pending_restart: True if the guest that runs does not see it: it
        is in the VM's spec for its next start
    :param data_volume: name of the DataVolume
    :param task: name of the import as a task, unique to each attempt
    :param since: when it was inserted, ISO 8601 in UTC
    :param username: for the server of the image, '' for none
    :param http_boot: True if HTTP boot asked for it
    :param method: see `Source`
    :param protocol: see `Source`
    :param verify: whether the server's certificate is checked
    """

    url: str
    image_name: str
    write_protected: bool
    state: State
    progress: float | None = None
    reason: str = ''
    message: str = ''
    pending_restart: bool = False
    data_volume: str = ''
    task: str = ''
    since: str = ''
    username: str = ''
    http_boot: bool = False
    method: str | None = None
    protocol: str | None = None
    verify: bool = True


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A certificate that servers of images are checked against.

    :param id: its name within the device: ``1``, ``2`` …
    :param pem: the certificate, PEM
    """

    id: str
    pem: str
