# SPDX-License-Identifier: Apache-2.0
"""Constants of the IPMI specification used by several modules."""

import enum
import typing

#: UDP port of IPMI (section 13.1.2).
PORT = 623

#: Limits of user names and passwords, in bytes (sections 22.28 and 22.30).
USERNAME_MAX = 16
PASSWORD_MAX = 20

#: Seconds that serving a command may take to write to and to read from the
#: cluster, as machine options. ``ipmitool`` sends a request four times in ten
#: seconds and then reports the BMC as unreachable; "node busy" before that is
#: more useful. On a busy node packets are a second or two under way.
CLUSTER_DEADLINES: dict[str, typing.Any] = {
    'write_deadline': 7.0, 'read_deadline': 4.0}


class Completion(enum.IntEnum):
    """Completion codes, table 5-2."""

    OK = 0x00

    #: Parameter not supported (28.12, 28.13: command specific).
    PARAMETER_NOT_SUPPORTED = 0x80

    #: Write-protected offset (34.3).
    WRITE_PROTECTED = 0x80

    #: Another client holds 'set in progress' (28.12).
    SET_IN_PROGRESS = 0x81

    #: The tested password is another one (22.30), or has another size.
    WRONG_PASSWORD = 0x80
    WRONG_PASSWORD_SIZE = 0x81

    #: Payload already active on another session (24.1).
    PAYLOAD_ALREADY_ACTIVE = 0x80

    #: Payload already deactivated (24.2).
    PAYLOAD_NOT_ACTIVE = 0x80

    #: Payload type not available on the channel (24.8, 24.9).
    PAYLOAD_NOT_AVAILABLE = 0x80

    #: Payload type disabled (24.1, 24.2).
    PAYLOAD_DISABLED = 0x81

    #: Operation not allowed under the present configuration (24.3).
    PAYLOAD_OPERATION_REFUSED = 0x81

    #: Payload instance is not active (24.3).
    PAYLOAD_INSTANCE_NOT_ACTIVE = 0x83

    #: The payload cannot be activated without encryption (24.1).
    PAYLOAD_NEEDS_ENCRYPTION = 0x84

    #: Requested level exceeds the user's limit (22.18).
    LEVEL_EXCEEDS_LIMIT = 0x81

    #: The client's initial sequence number is 0 (22.17).
    SEQUENCE_OUT_OF_RANGE = 0x84

    #: Requested level exceeds the user's or channel's limit (22.17).
    LEVEL_EXCEEDS_USER = 0x86

    #: The parameter is read-only (23.1, 22.14a); setting is not supported on
    #: this channel (22.22).
    READ_ONLY = 0x82

    #: The access mode is not supported (22.22).
    ACCESS_MODE_NOT_SUPPORTED = 0x83

    #: The key is locked (22.25).
    KEY_LOCKED = 0x80

    #: The watchdog timer was never set (27.5).
    WATCHDOG_NOT_SET = 0x80

    #: Invalid session handle (22.19).
    INVALID_SESSION_HANDLE = 0x88

    #: Invalid session id (22.19).
    INVALID_SESSION_ID = 0x87

    #: Node busy; the client may retry.
    NODE_BUSY = 0xC0

    #: Unrecognised command.
    INVALID_COMMAND = 0xC1

    #: The command is not for this LUN.
    INVALID_LUN = 0xC2

    #: Timeout while processing; the outcome is unknown.
    TIMEOUT = 0xC3

    #: The reservation was cancelled, or the id is invalid.
    RESERVATION_CANCELED = 0xC5

    #: The request is too short.
    LENGTH_INVALID = 0xC7

    #: Parameter out of range.
    OUT_OF_RANGE = 0xC9

    #: Cannot return the number of data bytes requested.
    TOO_MUCH_REQUESTED = 0xCA

    #: Requested object not present.
    NOT_PRESENT = 0xCB

    #: Invalid value in a data field of the request.
    INVALID_FIELD = 0xCC

    #: Command illegal for the sensor or record type.
    ILLEGAL_FOR_SENSOR = 0xCD

    #: The response could not be provided.
    NO_RESPONSE = 0xCE

    #: Insufficient privilege level, or another security restriction.
    ACCESS_DENIED = 0xD4

    #: Not supported in the present state.
    WRONG_STATE = 0xD5

    #: The sub-function is disabled or unavailable.
    UNAVAILABLE = 0xD6

    #: Unspecified error.
    UNSPECIFIED = 0xFF


class Status(enum.IntEnum):
    """RMCP+ and RAKP message status codes, table 13-15."""

    OK = 0x00
    INVALID_SESSION_ID = 0x02
    INVALID_ROLE = 0x09
    UNAUTHORIZED_ROLE = 0x0A
    INVALID_NAME_LENGTH = 0x0C
    UNAUTHORIZED_NAME = 0x0D
    INVALID_CHECK_VALUE = 0x0F
    NO_CIPHER_SUITE = 0x11
    ILLEGAL_PARAMETER = 0x12


class Privilege(enum.IntEnum):
    """Privilege levels, section 6.8. OEM levels are not served."""

    CALLBACK = 1
    USER = 2
    OPERATOR = 3
    ADMINISTRATOR = 4


#: Privilege level that no session has: of commands for the system interface.
NEVER = 0x10

#: Privilege limit of a user without access (22.26).
NO_ACCESS = 0x0F


class Payload(enum.IntEnum):
    """Payload types, table 13-16."""

    IPMI = 0x00
    SOL = 0x01
    OPEN_SESSION_REQUEST = 0x10
    OPEN_SESSION_RESPONSE = 0x11
    RAKP1 = 0x12
    RAKP2 = 0x13
    RAKP3 = 0x14
    RAKP4 = 0x15


#: Network functions of requests, table 5-1; responses have the next number.
CHASSIS = 0x00
SENSOR = 0x04
APPLICATION = 0x06
STORAGE = 0x0A
TRANSPORT = 0x0C
GROUP_EXTENSION = 0x2C
