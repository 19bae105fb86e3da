# SPDX-License-Identifier: Apache-2.0
"""Events of the machines and the services, and their subscriptions.

`dispatcher.EventDispatcher` is the event service of one emulator.
`machine_events` detects changes of VMs, `event_record` and `event_registry`
build the events, `filters` select them, `delivery` pushes them to subscribers
and `server_sent_events` streams them.
"""
