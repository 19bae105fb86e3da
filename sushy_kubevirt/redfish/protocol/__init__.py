# SPDX-License-Identifier: Apache-2.0
"""The Redfish protocol (DSP0266): what applies to every request and response.

Authentication, authorization, request bodies, ETags, query parameters,
headers and errors. No module here knows a particular resource.
"""
