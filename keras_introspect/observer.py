"""One model's introspection: runs the step under the taps, and accumulates what came by."""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_introspect.capture import Capture, LayerNames, LayerTaps, MetricTaps, OptimizerTaps, Seen, Wanted, activate
from keras_introspect.capture.internals import attribute_scope, flatten_layers
from keras_introspect.capture.loops import SUMS
from keras_introspect.capture.optimizers import observe_gradients, several_replicas
from keras_introspect.collectors import Collector, StepMetrics
from keras_introspect.collectors.base import Group, group_of_calls
from keras_introspect.reading import Reading, key_of
from keras_introspect.recording import Recording
from keras_introspect.saving import IntrospectionState
from keras_introspect.state import Accumulator, LoopScratch, StepBuffer, counter, probe_variable, replica_id
from keras_introspect.statistics import Context, Piece, Statistic, TensorSpec
from keras_introspect.statistics.pooling import over_replicas, states_of

BUFFER_STEPS = 256  # steps that wait on the device before the host fetches them


class Observer:
    """Ties collectors to a model's state; made at each `compile`.

    Args:
        collectors: what to observe.
        state: where recording and accumulators live; it outlasts the observer.
        steps_per_execution: how many steps run between two visits of the host.
    """

    def __init__(
        self, collectors: Sequence[Collector], state: IntrospectionState, steps_per_execution: int = 1
    ) -> None:
        self.collectors = tuple(collectors)
        self.state = state
        parts = [part for collector in collectors for part in collector.parts()]
        self.parts = parts
        self._training = [part for part in parts if not part.inference]
        self._inference = [part for part in parts if part.inference]
        flags = zip(*(part.wanted for part in self._training), strict=True)
        self._wanted = Wanted(*map(any, flags)) if self._training else Wanted()
        self._missed: dict[tuple[str, str], str] = {}
        self._phases: dict[str, dict[str, bool]] = {}
        self._checked = False
        self._seen_through: tuple[LayerNames, LayerTaps, list[Any]] | None = None
        self.statistics: dict[str, Statistic] = {
            key_of(part, statistic): statistic for part in parts for statistic in (*part.statistics, *part.accumulated)
        }
        self.accumulators = {
            key_of(part, statistic): Accumulator(statistic, part.replicated)
            for part in parts
            for statistic in part.accumulated
        }
        capacity = max(BUFFER_STEPS, 2 * steps_per_execution)
        self._buffers = {c.name: StepBuffer(capacity) for c in parts if c.per_step or isinstance(c, StepMetrics)}
        self._specs: dict[tuple[str, str], TensorSpec] = {}
        self._scratches: dict[tuple[str, TensorSpec, int], LoopScratch] = {}  # of each replica its own
        self._probes: dict[int, Any] = {}  # by replica
        self._evaluated: Any = None
        self._xla = False
        self.reading = Reading(
            parts, self.accumulators, self._buffers, self._missed, self._phases, lambda: state.recording
        )
        state.use(self)

    @property
    def recording(self) -> Recording:
        return self.state.recording

    @property
    def evaluates(self) -> bool:
        """Whether the inference phase is observed."""
        return bool(self._inference)

    # --- the step ---

    def run_step(self, model: Any, train_step: Callable[[Any], Any], data: Any) -> Any:
        """Runs `train_step(data)`, Keras's or the user's, untouched, and accumulates what came by."""
        names, layer_taps, further_taps = self._taps(model)
        capture = self._capture(model, self._wanted, names, self._training)
        if self._wanted.values_before:
            for variable in model.trainable_variables:
                capture.keep_value(variable)
        with contextlib.ExitStack() as stack:
            for context in (activate(capture), layer_taps, *further_taps):
                stack.enter_context(context)
            logs = capture.logs = train_step(data)
        with attribute_scope():
            self._accumulate(model, capture, self._training)
        self._missed.update(capture.missed)
        self._note_phases("train", capture)
        self.state.report_unplaced()
        return logs

    def run_test_step(self, model: Any, test_step: Callable[[Any], Any], data: Any) -> Any:
        """The same for a step of `evaluate`, of which the layer outputs are observed."""
        if self._evaluated is None:
            self._evaluated = counter()
        names, layer_taps, _ = self._taps(model)
        capture = self._capture(model, Wanted(outputs=True), names, self._inference)
        capture.iterations = tf.identity(tf.convert_to_tensor(self._evaluated))
        with activate(capture), layer_taps:
            logs = capture.logs = test_step(data)
        with attribute_scope():
            self._accumulate(model, capture, self._inference)
            # Not in the call in which a generator turns out to be at its end.
            with tf.control_dependencies([t for t in tf.nest.flatten(logs) if tf.is_tensor(t)]):
                self._evaluated.assign_add(1)
        self._note_phases("inference", capture)
        for part in self._inference:
            self._missed.update(
                {(part.name, name): why for (view, name), why in capture.missed.items() if view == part.key}
            )
        return logs

    def _note_phases(self, phase: str, capture: Capture) -> None:
        """Notes what `training` each layer was called with; of one that was called with both, nothing."""
        for name, values in capture.phases.items():
            if len(values) == 1:
                self._phases.setdefault(name, {})[phase] = next(iter(values))
            else:
                self._phases.get(name, {}).pop(phase, None)

    def _taps(self, model: Any) -> tuple[LayerNames, LayerTaps, list[Any]]:
        """The names and taps of the layers, and the taps that a training step has besides: one for all steps."""
        if self._seen_through is None:
            further = [OptimizerTaps(model), *([MetricTaps(model)] if self._wanted.metrics else [])]
            self._seen_through = LayerNames(model), LayerTaps(model), further
        return self._seen_through

    def _capture(self, model: Any, wanted: Wanted, names: LayerNames, collectors: Sequence[Collector]) -> Capture:
        self._xla = bool(model.jit_compile) and not tf.executing_eagerly()
        capture = Capture(model, wanted, names)
        capture.carries = not self._xla
        capture.observe_in_loop = functools.partial(self._observe_in_loop, capture, collectors)
        capture.probe_variable = functools.partial(self._probe_variable, model)
        return capture

    def _accumulate(self, model: Any, capture: Capture, collectors: Sequence[Collector]) -> None:
        if not self._checked:
            self.check_selections(model)
        for key, (spec, scratches) in capture.loop_states.items():
            capture.loop_states[key] = (spec, {name: scratch.take() for name, scratch in scratches.items()})
        capture.collect_probes()
        for collector in collectors:
            if isinstance(collector, StepMetrics):
                self._keep_metrics(collector, capture)
            elif collector.accumulated or collector.per_step:
                groups = collector.groups(capture)
                if not self._xla:  # under XLA no bits are promised
                    groups = [[_apart(capture, piece) for piece in group] for group in groups]
                if groups:
                    self._accumulate_groups(collector, groups, capture.iterations)

    def _keep_metrics(self, collector: StepMetrics, capture: Capture) -> None:
        values = collector.values(capture)
        if not values:
            return
        specs = [TensorSpec(name, (), batched=False, channel_axis=None) for name in values]
        buffer = self._buffers[collector.name]
        layout = buffer.layout({collector.key: (specs, (len(specs),))})
        step = 0 if capture.iterations is None else capture.iterations
        vector = tf.stack(list(values.values()))
        _each(collector.every, capture.iterations, lambda: buffer.append(layout, step, {collector.key: vector}))

    def _accumulate_groups(self, collector: Collector, groups: list[Group], iterations: Any) -> None:
        groups = [self._widened(collector, group) for group in groups]
        taken = dict.fromkeys((*collector.accumulated, *(collector.statistics if collector.per_step else ())))
        usable = {s: [g for g in groups if any(s.takes(piece) for piece in g)] for s in taken}
        specs = {s: [group[0].spec for group in chosen] for s, chosen in usable.items() if chosen}
        if not specs:
            return
        summed = [statistic for statistic in specs if statistic in collector.accumulated]
        for statistic in summed:  # variables are made here, outside any branch
            self.accumulators[key_of(collector, statistic)].segment(specs[statistic])
        buffer = self._buffers.get(collector.name)
        kept = [] if buffer is None else [statistic for statistic in specs if statistic.step_fields]
        if buffer is not None:
            layout = buffer.layout({s.name: (specs[s], (len(specs[s]), s.step_fields)) for s in kept})
        context = Context(0 if iterations is None else iterations, self._xla, {})

        def states() -> dict[Statistic, Any]:
            return {statistic: states_of(statistic, usable[statistic], context) for statistic in specs}

        def keep(own: dict[Statistic, Any], pooled: dict[Statistic, Any]) -> None:
            for statistic in summed:
                self.accumulators[key_of(collector, statistic)].update(own[statistic], specs[statistic])
            if buffer is not None:
                vectors = {s.name: tf.cast(s.step_state(pooled[s], specs[s]), tf.float64) for s in kept}
                buffer.append(layout, context.step, vectors)

        def observe() -> None:
            own = states()
            keep(own, own)

        if kept and not collector.replicated and several_replicas():
            # A step's value needs all replicas' shares, and inside a branch they cannot be gathered.
            own = states()
            pooled = {statistic: over_replicas(statistic, own[statistic]) for statistic in kept}
            observe = functools.partial(keep, own, pooled)
        _each(collector.every, iterations, observe)

    def _widened(self, collector: Collector, group: Group) -> Group:
        """The group under a spec that fits all shapes that its tensor had so far: what varies, varies again."""
        if group[0].values is None:
            return group  # its state was taken in a loop, for the shape it had there
        key = (collector.name, group[0].spec.name)
        spec = self._specs.get(key, group[0].spec).joined(group[0].spec)
        self._specs[key] = spec
        return group if spec == group[0].spec else [piece._replace(spec=spec) for piece in group]

    # --- inside loops ---

    def _observe_in_loop(
        self, capture: Capture, collectors: Sequence[Collector], name: str, layer: Any, values: Any
    ) -> bool:
        """Takes in a tensor of a loop's body, or merges it into scratch states; says whether any collector could."""
        choosing = [c for c in collectors if c.key == "layer_outputs" and c.selection.chooses(layer, name)]
        if choosing and capture.carry(name, values):
            return True
        observed = False
        for collector in choosing:
            group = group_of_calls(name, [Seen(values, layer)])
            spec = group[0].spec
            scratches = {}
            context = Context(_steps_so_far(capture), self._xla, {})
            for statistic in collector.statistics:
                if not statistic.takes(group[0]):
                    continue
                key = (key_of(collector, statistic), spec, replica_id())
                if key not in self._scratches:
                    self._scratches[key] = LoopScratch(statistic, spec)
                scratches[statistic.name] = self._scratches[key]
                scratches[statistic.name].merge(statistic.partials(group, context))
            capture.loop_states[collector.name, name] = (spec, scratches)
            observed = True
        return observed

    def _probe_variable(self, model: Any) -> Any:
        replica = replica_id()
        if replica not in self._probes:
            self._probes[replica] = probe_variable(2 * len(flatten_layers(model)) + 8, len(SUMS))
        return self._probes[replica]

    # --- memory ---

    @property
    def has_allocated(self) -> bool:
        """Whether the variables of the training step exist."""
        kept = [buffer.nbytes() for buffer in self._buffers.values()]
        return any(not a.is_untouched() for a in self.accumulators.values()) or any(kept)

    def allocated(self, model: Any) -> dict[str, dict[str, int]]:
        """Bytes of the variables that exist, on each device: collector → statistic → bytes.

        The steps of `StepMetrics` are estimated until there was one.
        """
        found: dict[str, dict[str, int]] = {}
        probe = next(iter(self._probes.values()), None)
        for part in self.parts:
            sizes = {s.name: self.accumulators[key_of(part, s)].nbytes() for s in part.accumulated}
            for (key, _, replica), scratch in self._scratches.items():
                collector, _, statistic = key.partition("|")
                if collector == part.name and not replica:
                    sizes[statistic] += scratch.nbytes()
            if probe is not None and part.wanted.output_gradients:
                sizes["loops"] = 8 * math.prod(probe.shape)  # one for all
                probe = None
            if part.name in self._buffers:
                sizes["steps"] = self._buffers[part.name].nbytes()
            if isinstance(part, StepMetrics) and not sizes["steps"]:
                expected = 2 + len(model.metrics)  # how many they are, the first step tells
                sizes["steps"] = 8 * self._buffers[part.name].capacity * (expected + 2) + 8
            found[part.name] = sizes
        return found

    def allocate(self, model: Any, inputs: Any) -> None:
        """Makes the variables as the first step would: a forward and a backward pass are traced, and not run.

        Args:
            model: the observed model, built.
            inputs: `tf.TensorSpec`s of a batch.
        """
        names, layer_taps, _ = self._taps(model)

        def training_step(x: Any) -> None:
            capture = self._capture(model, self._wanted, names, self._training)
            variables = list(model.trainable_variables)
            with activate(capture), layer_taps, tf.GradientTape() as tape:
                outputs = [o for o in tf.nest.flatten(model(x, training=True)) if o.dtype.is_floating]
                # Cross-entropies start from the logits, where Keras's softmax and sigmoid have left them.
                loss = tf.add_n([tf.reduce_sum(tf.cast(_before_head(model, o), tf.float32)) for o in outputs])
            with activate(capture):
                gradients = tape.gradient(loss, variables)
            observe_gradients(capture, model.optimizer, gradients, variables)
            for variable in variables if self._wanted.values_before else ():
                capture.keep_value(variable)
            with attribute_scope():
                own = [part for part in self._training if not isinstance(part, StepMetrics)]  # no metric was updated
                self._accumulate(model, capture, own)

        def test_step(x: Any) -> None:
            capture = self._capture(model, Wanted(outputs=True), names, self._inference)
            with activate(capture), layer_taps:
                model(x, training=False)
            with attribute_scope():
                self._accumulate(model, capture, self._inference)

        if self._training:
            tf.function(training_step, autograph=False).get_concrete_function(inputs)
        if self._inference:
            tf.function(test_step, autograph=False).get_concrete_function(inputs)

    def check_selections(self, model: Any) -> None:
        """Raises if `layers=` of a collector names something that the built model does not have."""
        for collector in self.collectors:
            collector.check_selection(model)
        self._checked = True

    def check_budgets(self, model: Any, epochs: int, steps: int) -> None:
        """Raises if raw values would take more than their budget; of a model that is not built, nothing is known."""
        if model.built:
            for part in self.parts:
                part.check_budget(model, epochs, steps)

    # --- between the steps ---

    def flush_steps(self) -> None:
        """Moves the steps that wait on the device into the recording."""
        self.reading.flush_steps()

    def discard(self) -> None:
        """Forgets all that is on the device: an epoch begun, and steps not fetched yet."""
        self.reading.begin_epoch()
        for buffer in self._buffers.values():
            buffer.clear()

    @property
    def keeps_steps(self) -> bool:
        """Whether single steps wait on the device, which the host must fetch now and then."""
        return bool(self._buffers)


def _steps_so_far(capture: Capture) -> Any:
    """How many steps the optimizer had done: asked in the forward pass, when none has been applied yet."""
    optimizer = getattr(capture.model, "optimizer", None)
    if capture.iterations is not None or optimizer is None:
        return 0 if capture.iterations is None else capture.iterations
    return tf.convert_to_tensor(optimizer.iterations)


def _each(every: int, iterations: Any, observe: Callable[[], None]) -> None:
    """Observes each n-th step, decided on the device."""
    if every == 1 or iterations is None:
        observe()
    else:
        tf.cond(tf.equal(iterations % every, 0), observe, lambda: None)


def _apart(capture: Capture, piece: Piece) -> Piece:
    """The piece with tensors that grappler does not see as those of the training."""
    beside = {key: capture.apart(value) if tf.is_tensor(value) else value for key, value in piece.beside.items()}
    return piece._replace(values=capture.apart(piece.values), beside=beside)


def _before_head(model: Any, output: Any) -> Any:
    """What the loss depends on of an output, as far as its name tells."""
    return getattr(output, "_keras_logits", output) if "crossentropy" in str(model.loss).lower() else output
