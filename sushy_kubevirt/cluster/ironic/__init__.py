# SPDX-License-Identifier: Apache-2.0
"""Nodes of a cluster in Ironic.

`nodes` and `ports` say what is declared and how what exists differs from it;
`provision` makes the difference and brings nodes to ``available``; `teardown`
removes them; `client` is Ironic's API.
"""
