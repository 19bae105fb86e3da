# SPDX-License-Identifier: Apache-2.0
"""What Redfish shows and takes: a module for each resource or family.

A module translates between Redfish's words and those of the machine (or of a
service) and brings its routes; `sushy_kubevirt.redfish.routes` puts them in.
"""
