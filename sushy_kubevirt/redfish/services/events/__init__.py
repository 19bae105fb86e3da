# SPDX-License-Identifier: Apache-2.0
"""Events: what happens to the machines and the services, and who is told.

`hub.Events` is the service of one emulator. `watching` notices, `records` and
`messages` word it, `filters` say who wants it, `delivery` and `streams` bring
it there.
"""
