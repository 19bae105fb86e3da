# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan, and waits until the nodes are ready.

Nodes are worked on in parallel, and one that fails does not stop others. No
step needs to know that an earlier one was done by the same run: a run that is
killed is completed by the plan and run that follow.
"""

from __future__ import annotations

import collections
from collections import abc
import concurrent.futures
import dataclasses
import time
import types
import typing

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.objects import bmc
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import volumes
from sushy_kubevirt.cluster import observed
from sushy_kubevirt.cluster import plan
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import progress
from sushy_kubevirt.cluster import readiness
from sushy_kubevirt.cluster import writes
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.kube import stored_names
from sushy_kubevirt.operator import naming

if typing.TYPE_CHECKING:
    from sushy_kubevirt.kube import client

#: Seconds until the first lists of the watches are complete.
LIST_SECONDS = 60

#: Seconds until the pods of BMCs are looked at that are not ready, and again.
#: The conditions of a BMC do not have the scheduler's reason.
POD_SECONDS = 5

#: Seconds between looks at how long nodes have had a problem.
CHECK_SECONDS = 0.5

#: Field selector of pods that have no node.
_WITHOUT_NODE = 'spec.nodeName='

#: Steps of nodes besides those of `readiness.Step`.
REMOVED = 'removed'

#: What to look at when nothing tells why a step is not done.
_SUSPECTS: dict[str, str] = {
    readiness.Step.VM: 'Check that virt-controller of KubeVirt runs',
    readiness.Step.VOLUMES: 'Check that CDI runs, and the claims of its '
                            'volumes: kubectl describe datavolume,pvc',
    readiness.Step.BMC: 'Check that sushy-kubevirt-operator runs and watches '
                        'this namespace'}

#: Steps of writing an object.
_STEPS: dict[kinds.AnyResource, str] = {
    api_resources.SECRET: 'secret', api_resources.VM: 'vm', kinds.BMC: 'bmc'}


@dataclasses.dataclass(frozen=True)
class Limits:
    """How long to wait, in seconds.

    :param ready: for a node to become ready, since the writes
    :param gone: for an object to be deleted
    :param patience: while a failure lasts that does not pass by itself, such
        as an exceeded quota
    """

    ready: float = 600
    gone: float = 300
    patience: float = 30


@dataclasses.dataclass
class Result:
    """What a run has achieved.

    :param ready: names of nodes that are ready
    :param removed: names of nodes that are gone
    :param failed: reason by name of node or network
    """

    ready: list[str] = dataclasses.field(default_factory=list)
    removed: list[str] = dataclasses.field(default_factory=list)
    failed: dict[str, str] = dataclasses.field(default_factory=dict)


class _Problem(typing.NamedTuple):
    """What a node waits for.

    ``since`` is a time of `time.monotonic`, from which on the step has had a
    problem that does not pass by itself; None without such a problem.
    """

    step: str
    text: str
    since: float | None


def run(client: client.Client, plan: plan.Plan,
        lines: progress.Lines = progress.SILENT, limits: Limits = Limits(),
        kept: abc.Mapping[str, str] = types.MappingProxyType({}),
        workers: int = api_server.WORKERS) -> Result:
    """Carry out a plan and wait.

    :param client: whose user agent is `api_server.FIELD_MANAGER`
    :param lines: for steps of nodes and networks: ``secret``, ``vm``,
        ``volumes``, ``bmc``, ``network`` or ``removed``, with ``started``,
        ``waiting``, ``done`` or ``failed`` and a reason
    :param kept: why the VMs of nodes must not be deleted or recreated, by
        name; the nodes fail
    :param workers: nodes that are worked on at the same time
    :raises: `errors.MachineError` if the cluster cannot be watched
    """
    return _Run(client, plan, lines, limits, kept, workers).run()


class _Run:

    def __init__(self, client: client.Client, plan: plan.Plan,
                 lines: progress.Lines, limits: Limits,
                 kept: abc.Mapping[str, str], workers: int) -> None:
        self._client = client
        self._plan = plan
        self._lines = lines
        self._limits = limits
        self._kept = kept
        self._workers = workers
        self._writer = writes.Writer(client, plan)
        self._result = Result()
        #: Generations of BMCs that were written, by node.
        self._generations: dict[str, int] = {}
        #: Names of the DataVolumes of each declared node.
        self._volumes = {
            wanted.node: volumes.template_names(wanted.body)
            for wanted in plan.wanted if wanted.resource == api_resources.VM}
        self._observed = observed.Observed(
            client, plan.namespace, plan.cluster, observed.KINDS + (
                (api_resources.DATA_VOLUME,) if any(self._volumes.values())
                else ()))
        #: What each node waits for.
        self._problems: dict[str, _Problem] = {}
        #: Steps that each node has done.
        self._done: dict[str, set[str]] = collections.defaultdict(set)
        #: Why the pods of BMCs have no node, by their label.
        self._unscheduled: dict[str, str] = {}
        #: Time (`time.monotonic`) of the next look at these pods.
        self._pods_at = 0.0

    def run(self) -> Result:
        for conflict in self._plan.conflicts:
            self._fail(conflict.node or self._plan.cluster, 'plan',
                       conflict.text)
        self._networks((plan.Action.CREATE, plan.Action.CHANGE,
                        plan.Action.RECREATE, plan.Action.JOIN))
        nodes = [node for node in dict.fromkeys(
            (*self._plan.nodes, *(change.node for change in self._plan.changes
                                  if change.node is not None)))
            if node not in self._result.failed]
        if nodes:
            with self._observed:
                self._observed.wait_listed(LIST_SECONDS)
                self._write(nodes)
                self._wait([node for node in nodes
                            if node not in self._result.failed])
        # VMs that remain are connected to networks that are declared no more.
        if not self._result.failed.keys() & {
                *self._plan.removed, *self._plan.recreated}:
            self._networks((plan.Action.DELETE, plan.Action.LEAVE))
        return self._result

    def _networks(self, actions: tuple[plan.Action, ...]) -> None:
        for change in self._plan.of_node(None):
            if change.action not in actions:
                continue
            try:
                self._tell(change.name, 'network', 'started', str(change))
                self._writer.write(change)
                self._tell(change.name, 'network', 'done')
            except (errors.MachineError, problems.ClusterError) as e:
                self._fail(change.name, 'network', str(e))
                for node in self._plan.users.get(change.name, ()):
                    self._fail(node, 'network', f'{change.name}: {e}')

    def _write(self, nodes: list[str]) -> None:
        changed = [node for node in nodes if self._plan.of_node(node)]
        if not changed:
            return
        pool = concurrent.futures.ThreadPoolExecutor(self._workers)
        try:
            list(pool.map(self._write_node, changed))
        finally:
            # After Ctrl-C, nodes that were not begun are left as they are.
            pool.shutdown(cancel_futures=True)

    def _write_node(self, node: str) -> None:
        """Carry out the changes of a node, without waiting for the last."""
        step = 'plan'
        try:
            changes = self._plan.of_node(node)
            if any(change.resource == api_resources.VM and change.action in (
                    plan.Action.DELETE, plan.Action.RECREATE)
                    for change in changes):
                step = REMOVED
                if node in self._kept:
                    raise problems.NodeFailed(self._kept[node])
            if all(change.action == plan.Action.DELETE for change in changes):
                # A BMC is deleted while its VM exists, whose boot settings
                # it restores.
                changes = changes[::-1]
            for change in changes:
                step = _step(change)
                self._tell(node, step, 'started', str(change))
                if change.action == plan.Action.RECREATE:
                    self._remove(change)
                written = self._writer.write(change)
                if written and change.resource == kinds.BMC:
                    self._generations[node] = written['metadata']['generation']
                if change.resource == api_resources.SECRET and written:
                    self._tell(node, step, 'done')
        except Exception as e:
            # Any, as it must not end the work on other nodes.
            self._fail(node, step, str(e) or repr(e))

    def _remove(self, change: plan.Change) -> None:
        self._writer.delete(change)
        if not self._observed.wait_gone(
                change.resource, change.name, change.metadata['uid'],
                self._limits.gone):
            raise TimeoutError(
                f'{change.resource.kind} {change.name} is still being '
                f'deleted after {self._limits.gone:g} s')

    def _wait(self, nodes: list[str]) -> None:
        """Wait for nodes to become ready, or to be gone."""
        checked_at = time.monotonic()
        self._pods_at = checked_at + POD_SECONDS
        pending = dict.fromkeys(nodes)
        end = time.monotonic() + max(self._limits.ready, self._limits.gone)
        look_at = set(nodes)
        while pending:
            for node in look_at & pending.keys():
                if self._settled(node):
                    del pending[node]
            # Not after each change: there are thousands.
            now = time.monotonic()
            if now > end or now >= checked_at + CHECK_SECONDS:
                checked_at = now
                self._give_up(pending, now > end)
            if pending:
                look_at = self._observed.wait_changes(
                    min(1, end - time.monotonic()))
                look_at |= self._look_at_pods(pending)

    def _settled(self, node: str) -> bool:
        if node in self._volumes:
            return self._is_ready(node)
        left = [resource.kind for resource, name in zip(
            kinds.OF_NODES, (bmc.secret_name(node), node, node), strict=True)
            if self._observed.find(resource, name) is not None]
        self._note(node, REMOVED, 'waiting for '
                   + ', '.join(left) if left else '')
        if not left:
            self._result.removed.append(node)
            self._tell(node, REMOVED, 'done')
        return not left

    def _is_ready(self, node: str) -> bool:
        live_bmc = self._observed.find(kinds.BMC, node)
        if live_bmc and live_bmc['metadata'].get(
                'generation', 0) < self._generations.get(node, 0):
            live_bmc = None     # The watch has not reported the write yet.
        state = readiness.of_node(
            self._observed.find(api_resources.VM, node),
            {name: self._observed.find(api_resources.DATA_VOLUME, name)
             for name in self._volumes[node]},
            live_bmc)
        changed = bool(self._plan.of_node(node))
        for step in state.done:
            if step not in self._done[node]:
                self._done[node].add(step)
                if changed:
                    self._tell(node, step, 'done')
        if state.ready:
            self._result.ready.append(node)
            return True
        step = list(readiness.Step)[len(state.done)]
        problem = state.problem
        if step == readiness.Step.BMC:
            problem = self._unscheduled.get(naming.label(node)) or problem
        self._note(node, step, problem)
        return False

    def _look_at_pods(self, pending: abc.Iterable[str]) -> set[str]:
        """Find out which pods of BMCs that are awaited have no node.

        :returns: names of nodes for which that has changed
        """
        now = time.monotonic()
        if now < self._pods_at:
            return set()
        awaited = [node for node in pending if node in self._problems
                   and self._problems[node].step == readiness.Step.BMC]
        if not awaited:
            return set()
        self._pods_at = now + POD_SECONDS
        old = self._unscheduled
        try:
            self._unscheduled = {
                pod['metadata']['labels'][stored_names.BMC_NAME]:
                    readiness.pod_problem(pod)
                for items, _ in self._client.pages(
                    api_resources.POD, self._plan.namespace,
                    stored_names.BMC_NAME,
                    _WITHOUT_NODE)
                for pod in items}
        except errors.MachineError:
            # It is asked for again; the nodes' time is limited anyway.
            return set()
        return {node for node in awaited if old.get(naming.label(node))
                != self._unscheduled.get(naming.label(node))}

    def _note(self, node: str, step: str, text: str) -> None:
        """Remember what a node waits for, and tell what is new."""
        old = self._problems.get(node)
        if old and (old.step, old.text) == (step, text):
            return
        # The importer of an image fails again and again, and runs meanwhile.
        since = old.since if old and old.step == step else None
        if since is None and readiness.lasts(text):
            since = time.monotonic()
        self._problems[node] = _Problem(step, text, since)
        if text:
            self._tell(node, step, 'waiting', text)

    def _give_up(self, pending: dict[str, None], late: bool) -> None:
        for node in list(pending):
            step, text, since = self._problems[node]
            if late or since is not None and readiness.lasts(text) and (
                    time.monotonic() - since > self._limits.patience):
                del pending[node]
                self._fail(node, step, text or (
                    f'Step {step} has not been done in '
                    f'{self._limits.ready:g} s. {_SUSPECTS.get(step, "")}'))

    def _fail(self, subject: str, step: str, reason: str) -> None:
        self._result.failed[subject] = reason
        self._tell(subject, step, 'failed', reason)

    def _tell(self, subject: str, step: str, state: str,
              message: str = '') -> None:
        self._lines.step(subject, step, ': '.join(
            filter(None, (state, message))))


def _step(change: plan.Change) -> str:
    if change.action == plan.Action.DELETE:
        return REMOVED
    return _STEPS[change.resource]
