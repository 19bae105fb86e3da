# SPDX-License-Identifier: Apache-2.0
"""What Nova needs for servers on a cluster's nodes.

`flavors` select nodes by resource class and traits; `placement` waits until
Nova has reported the nodes to Placement; `switch` writes the configuration of
networking-generic-switch for the nodes' ports.
"""
