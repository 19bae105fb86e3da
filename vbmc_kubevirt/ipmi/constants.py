# SPDX-License-Identifier: Apache-2.0
"""Numbers of the IPMI specification that more than one module needs."""

import enum

#: Limits of user names and passwords, in bytes (sections 22.28 and 22.30).
USERNAME_MAX = 16
PASSWORD_MAX = 20


class Completion(enum.IntEnum):
    """Completion codes, table 5-2."""

    OK = 0x00

    #: Not supported by this parameter (28.12, 28.13: command specific).
    PARAMETER_NOT_SUPPORTED = 0x80

    #: 'Set in progress' is held by somebody else (28.12).
    SET_IN_PROGRESS = 0x81

    #: Payloads of this type are not served (24.1, 24.2).
    PAYLOAD_DISABLED = 0x81

    #: The level exceeds what the user may have (22.18).
    LEVEL_EXCEEDS_LIMIT = 0x81

    #: The client's first sequence number is none (22.17).
    SEQUENCE_OUT_OF_RANGE = 0x84

    #: The level exceeds what the user or the channel may have (22.17).
    LEVEL_EXCEEDS_USER = 0x86

    #: No such session (22.19).
    INVALID_SESSION_ID = 0x87

    #: Resources are temporarily unavailable; may be tried again.
    NODE_BUSY = 0xC0

    #: Unrecognised command.
    INVALID_COMMAND = 0xC1

    #: The command is not for this LUN.
    INVALID_LUN = 0xC2

    #: Timeout while processing; what became of it is not known.
    TIMEOUT = 0xC3

    #: The request is too short.
    LENGTH_INVALID = 0xC7

    #: What is asked about does not exist.
    NOT_PRESENT = 0xCB

    #: A field of the request holds a value it cannot hold.
    INVALID_FIELD = 0xCC

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


class Payload(enum.IntEnum):
    """Payload types, table 13-16."""

    IPMI = 0x00
    OPEN_SESSION_REQUEST = 0x10
    OPEN_SESSION_RESPONSE = 0x11
    RAKP1 = 0x12
    RAKP2 = 0x13
    RAKP3 = 0x14
    RAKP4 = 0x15


#: Network functions of requests, table 5-1; responses have the next number.
CHASSIS = 0x00
APPLICATION = 0x06
