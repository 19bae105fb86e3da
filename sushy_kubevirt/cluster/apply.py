# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan, and waits until the nodes are ready.

Nodes are worked on in parallel, and one that fails does not stop others. No
step needs to know that an earlier one was done by the same run: a run that is
killed is completed by the plan and run that follow.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
import time

from sushy_kubevirt.cluster import api_server
from sushy_kubevirt.cluster.objects import bmc
from sushy_kubevirt.cluster.objects import kinds
from sushy_kubevirt.cluster.objects import volumes
from sushy_kubevirt.cluster import observed
from sushy_kubevirt.cluster.plan import Action
from sushy_kubevirt.cluster import problems
from sushy_kubevirt.cluster import readiness
from sushy_kubevirt.cluster import writes
from sushy_kubevirt.kube import api_resources
from sushy_kubevirt.kube import errors
from sushy_kubevirt.operator import naming

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
_SUSPECTS = {
    readiness.Step.VM: 'Check that virt-controller of KubeVirt runs',
    readiness.Step.VOLUMES: 'Check that CDI runs, and the claims of its '
                            'volumes: kubectl describe datavolume,pvc',
    readiness.Step.BMC: 'Check that sushy-kubevirt-operator runs and watches '
                        'this namespace'}


@dataclasses.dataclass(frozen=True)
class Progress:
    """Something that happened.

    :param subject: name of a node, or of a network
    :param step: ``secret``, ``vm``, ``volumes``, ``bmc``, ``network``,
        ``removed``
    :param state: ``started``, ``waiting`` (see message), ``done``, ``failed``
    :param message: what is done, or a reason; may be ''
    :param seconds: since the beginning
    """

    subject: str
    step: str
    state: str
    message: str
    seconds: float


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

    :param ready: list of names of nodes that are ready
    :param removed: list of names of nodes that are gone
    :param failed: dict of name of node or network and reason
    :param seconds: duration
    """

    ready: list = dataclasses.field(default_factory=list)
    removed: list = dataclasses.field(default_factory=list)
    failed: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0


def run(client, plan, report=lambda progress: None, limits=Limits(),
        before_removal=lambda node: None, options=api_server.OPTIONS,
        workers=api_server.WORKERS):
    """Carry out a plan and wait.

    :param client: a `client.Client`, whose user agent is
        `api_server.FIELD_MANAGER`
    :param plan: a `plan.Plan`
    :param report: function of a `Progress`, called from several threads, one
        at a time
    :param limits: `Limits`
    :param before_removal: function of a node's name, called before its VM is
        deleted or recreated; an exception fails the node and keeps the VM
    :param options: `options.Options` of the client
    :param workers: nodes that are worked on at the same time
    :returns: a `Result`
    :raises: `errors.MachineError` if the cluster cannot be watched
    """
    return _Run(client, plan, report, limits, before_removal, options,
                workers).run()


class _Run:

    def __init__(self, client, plan, report, limits, before_removal, options,
                 workers) -> None:
        self._client = client
        self._plan = plan
        self._report = report
        self._limits = limits
        self._before_removal = before_removal
        self._options = options
        self._workers = workers
        self._writer = writes.Writer(client, plan, options)
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._result = Result()
        self._generations = {}      # of BMCs that were written, by node

    def run(self):
        for one in self._plan.conflicts:
            self._fail(one.node or self._plan.cluster, 'plan', one.text)
        self._networks((Action.CREATE, Action.CHANGE, Action.RECREATE,
                        Action.JOIN))
        nodes = [node for node in dict.fromkeys(
            (*self._plan.nodes, *(one.node for one in self._plan.changes
                                  if one.node is not None)))
            if node not in self._result.failed]
        if nodes:
            with observed.Observed(
                    self._client, self._options, self._plan.namespace,
                    self._plan.cluster, self._kinds()) as self._observed:
                self._observed.wait_listed(LIST_SECONDS)
                self._write(nodes)
                self._wait([one for one in nodes
                            if one not in self._result.failed])
        # VMs that remain are connected to networks that are declared no more.
        if not self._result.failed.keys() & {
                *self._plan.removed, *self._plan.recreated}:
            self._networks((Action.DELETE, Action.LEAVE))
        self._result.seconds = time.monotonic() - self._began
        return self._result

    def _kinds(self):
        has_volumes = any(
            one.resource == api_resources.VM
            and volumes.template_names(one.body) for one in self._plan.wanted)
        return observed.KINDS + (
            (api_resources.DATA_VOLUME,) if has_volumes else ())

    def _networks(self, actions) -> None:
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

    def _write(self, nodes) -> None:
        changed = [node for node in nodes if self._plan.of_node(node)]
        if not changed:
            return
        pool = concurrent.futures.ThreadPoolExecutor(self._workers)
        try:
            for done in [pool.submit(self._write_node, node)
                         for node in changed]:
                done.result()
        finally:
            # After Ctrl-C, nodes that were not begun are left as they are.
            pool.shutdown(cancel_futures=True)

    def _write_node(self, node) -> None:
        """Carry out the changes of one node, without waiting for the last.
        """
        step = 'plan'
        try:
            changes = self._plan.of_node(node)
            if any(one.resource == api_resources.VM and one.action in (
                    Action.DELETE, Action.RECREATE) for one in changes):
                step = REMOVED
                self._before_removal(node)
            if all(one.action == Action.DELETE for one in changes):
                # A BMC is deleted while its VM exists, whose boot settings
                # it restores.
                changes = changes[::-1]
            for change in changes:
                step = _step(change)
                self._tell(node, step, 'started', str(change))
                if change.action == Action.RECREATE:
                    self._remove(change)
                made = self._writer.write(change)
                if made and change.resource == kinds.BMC:
                    self._generations[node] = made['metadata']['generation']
                if change.resource == api_resources.SECRET and made:
                    self._tell(node, step, 'done')
        except Exception as e:
            # Any, as it must not end the work on other nodes.
            self._fail(node, step, str(e) or repr(e))

    def _remove(self, change):
        self._writer.delete(change)
        if not self._observed.wait_gone(
                change.resource, change.name, change.live['metadata']['uid'],
                self._limits.gone):
            raise TimeoutError(
                f'{change.resource.kind} {change.name} is still being '
                f'deleted after {self._limits.gone:g} s')

    def _wait(self, nodes) -> None:
        """Wait for nodes to become ready, or to be gone."""
        self._volumes = {
            one.node: volumes.template_names(one.body)
            for one in self._plan.wanted
            if one.resource == api_resources.VM}
        # By node: step, text, and since when the step has had a problem that
        # does not pass, or None.
        self._problems = {}
        self._unscheduled = {}      # text, by the label of the BMC's pod
        self._checked_at = time.monotonic()
        self._pods_at = self._checked_at + POD_SECONDS
        self._done = {node: set() for node in nodes}
        pending = dict.fromkeys(nodes)
        end = time.monotonic() + max(self._limits.ready, self._limits.gone)
        look_at = set(nodes)
        while pending:
            for node in look_at & pending.keys():
                if self._settled(node):
                    del pending[node]
            # Not after each change: there are thousands.
            now = time.monotonic()
            if now > end or now >= self._checked_at + CHECK_SECONDS:
                self._checked_at = now
                self._give_up(pending, now > end)
            if pending:
                look_at = self._observed.wait_changes(
                    min(1, end - time.monotonic()))
                look_at |= self._look_at_pods(pending)

    def _settled(self, node):
        if node in self._volumes:
            return self._is_ready(node)
        left = [one.kind for one, name in zip(
            kinds.OF_NODES, (bmc.secret_name(node), node, node), strict=True)
            if self._observed.find(one, name) is not None]
        self._note(node, REMOVED, 'waiting for '
                   + ', '.join(left) if left else '')
        if not left:
            self._result.removed.append(node)
            self._tell(node, REMOVED, 'done')
        return not left

    def _is_ready(self, node) -> bool:
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

    def _look_at_pods(self, pending):
        """Find out which pods of BMCs that are awaited have no node.

        :param pending: iterable of names of nodes
        :returns: set of names of nodes for which that has changed
        """
        now = time.monotonic()
        if now < self._pods_at:
            return set()
        awaited = [node for node in pending if self._problems.get(
            node, ('',))[0] == readiness.Step.BMC]
        if not awaited:
            return set()
        self._pods_at = now + POD_SECONDS
        old = self._unscheduled
        try:
            self._unscheduled = {
                pod['metadata']['labels'][naming.LABEL]:
                    readiness.pod_problem(pod)
                for items, _ in self._client.pages(
                    kinds.POD, self._plan.namespace, naming.LABEL,
                    _WITHOUT_NODE)
                for pod in items}
        except errors.MachineError:
            # It is asked for again; the nodes' time is limited anyway.
            return set()
        return {node for node in awaited if old.get(naming.label(node))
                != self._unscheduled.get(naming.label(node))}

    def _note(self, node, step, problem) -> None:
        """Remember what a node waits for, and tell what is new."""
        old = self._problems.get(node)
        if old and old[:2] == (step, problem):
            return
        # The importer of an image fails again and again, and runs meanwhile.
        since = old[2] if old and old[0] == step else None
        if since is None and readiness.lasts(problem):
            since = time.monotonic()
        self._problems[node] = (step, problem, since)
        if problem:
            self._tell(node, step, 'waiting', problem)

    def _give_up(self, pending, late) -> None:
        for node in list(pending):
            step, problem, since = self._problems[node]
            if late or readiness.lasts(problem) and (
                    time.monotonic() - since > self._limits.patience):
                del pending[node]
                self._fail(node, step, problem or (
                    f'Step {step} has not been done in '
                    f'{self._limits.ready:g} s. {_SUSPECTS.get(step, "")}'))

    def _fail(self, subject, step, reason) -> None:
        with self._lock:
            self._result.failed[subject] = reason
        self._tell(subject, step, 'failed', reason)

    def _tell(self, subject, step, state, message: str = '') -> None:
        with self._lock:
            self._report(Progress(subject, str(step), state, message,
                                  time.monotonic() - self._began))


def _step(change):
    if change.action == Action.DELETE:
        return REMOVED
    return {api_resources.SECRET: 'secret', api_resources.VM: 'vm',
            kinds.BMC: 'bmc'}[change.resource]
