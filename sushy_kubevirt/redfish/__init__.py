# SPDX-License-Identifier: Apache-2.0
"""Redfish routes that are answered here and not by sushy-emulator.

Each module has one thing to answer for; `views` lists them all and puts them
into an application. They speak to machines (`sushy_kubevirt.machine`) and
to nothing else.
"""
