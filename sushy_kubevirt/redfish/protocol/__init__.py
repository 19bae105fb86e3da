# SPDX-License-Identifier: Apache-2.0
"""What holds for every Redfish request and answer, whatever it is about.

Knows no resource: who may ask, what a body may hold, how an answer and an
error look.
"""
