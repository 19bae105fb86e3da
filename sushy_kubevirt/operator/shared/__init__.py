# SPDX-License-Identifier: Apache-2.0
"""BMCs that share a pod.

The BMCs of a namespace are split into shards; each has one pod. `placement`
tells where a BMC runs, `entry` and `objects` make what is written, `shards`
assigns the slots and writes it.
"""
