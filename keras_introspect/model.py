"""The models: `IntrospectiveModel`, `IntrospectiveSequential`, `instrument`."""

import contextlib
import functools
import inspect
import warnings
from typing import Any

import keras
from keras import Model as KerasModel

from keras_introspect.callbacks._boundary import with_recorder
from keras_introspect.callbacks._workers import on_this_worker, saying_who_is_lost
from keras_introspect.capture import optimizers_of
from keras_introspect.capture.internals import Functional, auto_name, functional_init_arguments, is_validation_of_fit
from keras_introspect.collectors import Collector, resolve_collectors
from keras_introspect.cost import IntrospectionCost, cost_of
from keras_introspect.files import ATTRIBUTE
from keras_introspect.observer import Observer
from keras_introspect.recording import Recording
from keras_introspect.saving import IntrospectionState
from keras_introspect.workers import local_batch, returning_rank_1, spans_workers

_PACKAGE = "keras_introspect"


@keras.saving.register_keras_serializable(_PACKAGE)
class CompileConfig:
    """The arguments of `compile`, collectors apart, so that a plain Keras model can be compiled from it too.

    Keras copies models by `plain.compile(**config)`: `keys` and `[]` give what a plain `compile` takes.
    """

    def __init__(self, arguments: dict[str, Any], collectors: Any) -> None:
        self.arguments = arguments
        self.collectors = tuple(collectors)

    def keys(self) -> Any:
        return self.arguments.keys()

    def __getitem__(self, key: str) -> Any:
        return self.arguments[key]

    def get_config(self) -> dict[str, Any]:
        return {"arguments": self.arguments, "collectors": list(self.collectors)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "CompileConfig":
        return cls(**keras.saving.deserialize_keras_object(config))


class IntrospectiveModel(KerasModel):
    """A `keras.Model` that records its inside while it trains.

    Inherit from it instead of `keras.Model`, build it from `(inputs, outputs)`, or mix it into another model class
    (`class Net(ki.IntrospectiveModel, keras.Sequential)`). `compile` takes one argument more, `collectors`; everything
    else is Keras's. With `collectors=None` the training step is exactly that of a plain model.

    Example:

    >>> import keras, numpy as np
    >>> inputs = keras.Input((4,))
    >>> hidden = keras.layers.Dense(8, activation="relu", name="hidden")(inputs)
    >>> model = IntrospectiveModel(inputs, keras.layers.Dense(1, name="head")(hidden))
    >>> model.compile("sgd", "mse", collectors="default")
    >>> history = model.fit(np.ones((16, 4)), np.ones((16, 1)), epochs=2, verbose=0)
    >>> model.recording["gradients"].names
    ('hidden/kernel', 'hidden/bias', 'head/kernel', 'head/bias')
    >>> model.recording["gradients"].epoch("rms").shape
    (2, 4)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if Functional in IntrospectiveModel.__bases__:
            # Keras makes a class functional at the first (inputs, outputs) given to it, by changing the bases of all
            # its bases, and calls their `__new__` after each change: here is the moment to undo ours, which others use.
            IntrospectiveModel.__bases__ = (KerasModel,)
        if cls is IntrospectiveModel and functional_init_arguments(args, kwargs):
            return IntrospectiveFunctional.__new__(IntrospectiveFunctional, *args, **kwargs)
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        mro = type(self).__mro__
        plain = mro[mro.index(IntrospectiveModel) + 1] is KerasModel  # as against mixed into another model class
        if plain and functional_init_arguments(args, kwargs):
            _become_functional(type(self))  # which changes what follows us in the MRO
            IntrospectiveFunctional.__init__(self, *args, **kwargs)
        else:
            super().__init__(*args, **kwargs)

    # --- the recording ---

    @property
    def recording(self) -> Recording:
        """What was observed so far: a `Recording`, complete inside every callback's `on_epoch_end`."""
        return self._introspection.recording

    @property
    def collectors(self) -> tuple[Collector, ...]:
        """The collectors that the model was compiled with."""
        observer = self.__dict__.get("_introspection_observer")
        return () if observer is None else observer.collectors

    def introspection_cost(self, x: Any = None) -> IntrospectionCost:
        """What the collectors take on each device: a mapping from the collector's name to bytes.

        Known before training: the variables are made as the first step would make them, by tracing a step that is not
        run. (How many metrics `StepMetrics` has is estimated until there was one. With `run_eagerly=True`, gradients in
        loops may take more than this says before the first step.) In the recording, on the host, an epoch takes 8 bytes
        a statistic and tensor.

        Args:
            x: one batch of inputs, for a model without symbolic inputs; one that is not built is built for it.

        Raises:
            ValueError: the model is not compiled with collectors, or its inputs are not known.

        Example:

        >>> import keras
        >>> import keras_introspect as ki
        >>> model = IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(8)])
        >>> model.compile("sgd", "mse", collectors=[ki.Gradients(statistics="moments")])
        >>> dict(model.introspection_cost())
        {'gradients': 128}
        """
        observer = self.__dict__.get("_introspection_observer")
        if observer is None:
            raise ValueError(
                f"introspection_cost() of {self.name!r}, which has no collectors: compile(collectors=...)."
            )
        return cost_of(observer, self, x)

    @property
    def _introspection(self) -> IntrospectionState:
        """All that is saved of us. Keras's saver and loader find it here, as an attribute of the model."""
        state = self.__dict__.get("_introspection_state")
        if state is None:
            state = IntrospectionState()
            self.__dict__["_introspection_state"] = state  # not setattr: a built model's state is locked
        return state

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        # TensorFlow's checkpoints save what they find here (≥ 2.18). A SavedModel is to carry nothing of ours, and a
        # model that has nothing to save yet is to match the checkpoint of a plain model in full.
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "checkpoint" and not self._introspection.is_empty():
            children = {**children, ATTRIBUTE: self._introspection}
        return children

    def _lookup_dependency(self, name: str, *args: Any) -> Any:
        # And when they restore, they ask for what they saved by its name.
        return self._introspection if name == ATTRIBUTE else super()._lookup_dependency(name, *args)

    def get_state_tree(self, *args: Any, **kwargs: Any) -> Any:
        tree = super().get_state_tree(*args, **kwargs)
        if "numpy_array" in (*args, *kwargs.values()):  # the form that keras.callbacks.OrbaxCheckpoint saves
            self._introspection.put_into_tree(tree)
        return tree

    def set_state_tree(self, state_tree: Any) -> None:
        super().set_state_tree(state_tree)
        self._introspection.take_from_tree(state_tree)

    # --- what Keras calls ---

    def compile(self, *args: Any, collectors: Any = None, **kwargs: Any) -> None:
        """`keras.Model.compile`, and what to observe.

        Args:
            collectors: `"economy"`, `"default"` or `"all"`, or a list of collectors such as
                `[ki.Gradients(), ki.LayerOutputs(layers="conv*")]`; `None` observes nothing, at no cost.

        Raises:
            ValueError: an unknown collector, statistic or layer, or nothing to train with.
        """
        resolved = resolve_collectors(collectors)
        super().compile(*args, **kwargs)
        for name in ("train_step", "test_step", "_introspection_observer"):
            self.__dict__.pop(name, None)
        if not resolved:
            self._introspection.use(None)
            return
        own_step = type(self).train_step is not KerasModel.train_step
        if self.optimizer is None and not own_step and not optimizers_of(self):
            raise ValueError(
                f"compile(optimizer=None, collectors={collectors!r}): collectors observe training steps, and a model "
                "without an optimizer has none. Give an optimizer, as in compile('adam', ...), or leave collectors out."
            )
        if self.built:
            try:
                for collector in resolved:
                    collector.check_selection(self)
                    collector.check_budget(self, epochs=1, steps=1)
            except BaseException:
                self.compiled = False  # or a fit would train on, unobserved
                raise
        observer = Observer(resolved, self._introspection, self.steps_per_execution)
        self.__dict__["_introspection_observer"] = observer
        # Whatever runs or traces the step asks for self.train_step: Keras's functions and a user's own alike.
        self.__dict__["train_step"] = self._observed_train_step
        if observer.evaluates:
            self.__dict__["test_step"] = self._observed_test_step

    def _observed_train_step(self, data: Any) -> Any:
        step = functools.partial(type(self).train_step, self)
        return self.__dict__["_introspection_observer"].run_step(self, step, data)

    def _observed_test_step(self, data: Any) -> Any:
        step = functools.partial(type(self).test_step, self)
        return self.__dict__["_introspection_observer"].run_test_step(self, step, data)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        observer = self.__dict__.get("_introspection_observer")
        several_workers = spans_workers(self.distribute_strategy)
        if observer is None and not several_workers:
            return super().fit(*args, **kwargs)
        self._build_optimizer_early()
        bound = inspect.signature(super().fit).bind(*args, **kwargs)
        given = _named(bound)
        callbacks, verbose = given.get("callbacks"), given.get("verbose", "auto")
        if several_workers:
            callbacks = on_this_worker(callbacks, self.distribute_strategy)
        if observer is not None:
            callbacks = with_recorder(callbacks, observer, verbose)
            observer.reading.begin_fit(self, given.get("x"), given.get("y"))
        _put_callbacks(bound, callbacks)
        self.__dict__["_fitting"] = True
        try:
            with saying_who_is_lost() if several_workers else contextlib.nullcontext():
                return super().fit(*bound.args, **bound.kwargs)
        finally:
            self.__dict__.pop("_fitting", None)

    functools.update_wrapper(fit, KerasModel.fit)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        observer = self.__dict__.get("_introspection_observer")
        if observer is None or not observer.evaluates or is_validation_of_fit(kwargs):
            return super().evaluate(*args, **kwargs)
        observer.reading.forget_evaluation()
        result = super().evaluate(*args, **kwargs)
        if "_fitting" in self.__dict__:
            observer.reading.forget_evaluation()  # a callback's: what the epoch's validation had is recorded already
        else:
            observer.reading.end_evaluation(self)
        return result

    functools.update_wrapper(evaluate, KerasModel.evaluate)

    def _build_optimizer_early(self) -> None:
        """Makes the optimizer's variables before the step is traced: made during it, they have it traced twice.

        Keras's own step builds the optimizer on these variables; what a step of the user's own does is not known.
        """
        optimizer = self.optimizer
        if optimizer is None or optimizer.built or not self.built or type(self).train_step is not KerasModel.train_step:
            return
        if self.distribute_strategy.num_replicas_in_sync == 1 and self.trainable_variables:
            with self.distribute_strategy.scope(), keras.name_scope(optimizer.name, caller=optimizer):
                optimizer.build(self.trainable_variables)

    # Several workers: plain Keras's fit fails under them, in the two methods that these replace (Keras 3.10 to 3.15).

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        if iterator is not None and spans_workers(self.distribute_strategy):
            # Keras would have the workers reduce a batch whose values are on their replicas still.
            iterator, data_batch = None, local_batch(self.distribute_strategy, iterator)
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)

    def _make_function(self, step_function: Any) -> Any:
        # Keras takes the mean of the logs over the workers along their first axis, which scalars do not have.
        several = spans_workers(self.distribute_strategy)
        return super()._make_function(returning_rank_1(step_function) if several else step_function)

    def get_compile_config(self) -> dict[str, Any]:
        config = super().get_compile_config()
        if not config or not self.collectors:
            return config
        return keras.saving.serialize_keras_object(CompileConfig(config, self.collectors))

    def compile_from_config(self, config: dict[str, Any]) -> None:
        if type(self).compile is not IntrospectiveModel.compile:
            super().compile_from_config(config)  # a compile of the user's own: Keras says what to do
            return
        config = keras.saving.deserialize_keras_object(config)
        self.compile(**config, collectors=list(getattr(config, "collectors", ())) or None)
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)


def _named(bound: inspect.BoundArguments) -> dict[str, Any]:
    """What a `fit`, Keras's or one of the user's own, is given, by name: also what its `**kwargs` take up."""
    further = [p.name for p in bound.signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    return {**bound.arguments, **(bound.arguments.get(further[0], {}) if further else {})}


def _put_callbacks(bound: inspect.BoundArguments, callbacks: Any) -> None:
    """Gives a `fit` other callbacks, if it takes any."""
    parameters = bound.signature.parameters
    further = [p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD]
    if "callbacks" in parameters:
        bound.arguments["callbacks"] = callbacks
    elif further:
        bound.arguments[further[0]] = {**bound.arguments.get(further[0], {}), "callbacks": callbacks}
    else:
        warnings.warn(
            "Nothing will be recorded: fit() of this model is overridden and takes no callbacks=. Let it take "
            "callbacks= and hand them on to super().fit().",
            stacklevel=3,
        )


@keras.saving.register_keras_serializable(_PACKAGE)
class IntrospectiveFunctional(IntrospectiveModel, Functional):
    """What `IntrospectiveModel(inputs, outputs)` makes."""

    # Keras tells functional models by this signature when it saves and clones them.
    def __init__(self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(inputs, outputs, name=name or _keras_name(self, IntrospectiveFunctional), **kwargs)


def _hiding_arguments(init: Any) -> Any:
    @functools.wraps(init)
    def __init__(*args: Any, **kwargs: Any) -> None:
        init(*args, **kwargs)

    return __init__


# Keras 3.10 hides the arguments of its constructor behind a decorator, and ours must look alike.
if not inspect.getfullargspec(Functional.__init__).args:
    IntrospectiveFunctional.__init__ = _hiding_arguments(IntrospectiveFunctional.__init__)  # type: ignore[method-assign]


@keras.saving.register_keras_serializable(_PACKAGE)
class IntrospectiveSequential(IntrospectiveModel, keras.Sequential):
    """A `keras.Sequential` that records its inside while it trains; see `IntrospectiveModel`.

    Example:

    >>> import keras
    >>> model = IntrospectiveSequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse", collectors="all")
    >>> [collector.name for collector in model.collectors]
    ['weights', 'gradients', 'updates', 'layer_outputs', 'output_gradients']
    """

    def __init__(self, layers: Any = None, trainable: bool = True, name: str | None = None) -> None:
        super().__init__(layers, trainable=trainable, name=name or _keras_name(self, IntrospectiveSequential))


def _keras_name(model: Any, ours: type) -> str | None:
    """The name that Keras gives the plain model: names of operations decide how TensorFlow rounds their sums."""
    return auto_name(ours.__bases__[-1].__name__) if type(model) is ours else None


def _become_functional(cls: type) -> type:
    """Does to a subclass of ours what Keras does to a subclass of `keras.Model` that is given inputs and outputs."""
    if cls is IntrospectiveModel:
        return IntrospectiveFunctional
    if issubclass(cls, IntrospectiveModel) and not issubclass(cls, Functional):
        cls.__bases__ = tuple(_become_functional(base) for base in cls.__bases__)
    return cls


class _Instrumented:
    """Saving for models of a class that `instrument` derived: the plain model, to be instrumented again on loading."""

    _plain: type[keras.Model]

    def get_config(self) -> dict[str, Any]:
        plain = self._plain
        config = {
            "module": plain.__module__,
            "class_name": plain.__name__,
            "config": plain.get_config(self),
            "registered_name": keras.saving.get_registered_name(plain),
        }
        return {"model": config}

    def __reduce__(self) -> Any:
        # Pickles name a class by its module, where the plain one is found; Keras's loader is the same for all.
        return KerasModel._unpickle_model, super().__reduce__()[1]

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        return instrument(keras.saving.deserialize_keras_object(config["model"], custom_objects=custom_objects))


_register_instrumented = keras.saving.register_keras_serializable(_PACKAGE, "Instrumented")
_register_instrumented(_Instrumented)


@functools.cache
def _instrumented_class(plain: type[keras.Model]) -> type[IntrospectiveModel]:
    if plain is Functional:
        return IntrospectiveFunctional
    if plain is keras.Sequential:
        return IntrospectiveSequential
    namespace = {
        "_plain": plain,
        "__module__": plain.__module__,
        "__doc__": plain.__doc__,
        "__init__": plain.__init__,  # by whose signature Keras tells how to clone a model
    }
    # All derived classes share one registered name: any of them can load them all.
    return _register_instrumented(type(plain.__name__, (_Instrumented, IntrospectiveModel, plain), namespace))


def instrument(model: Any) -> Any:
    """Turns a Keras model that exists already into an introspective one, in place.

    Args:
        model: any `keras.Model`: functional, sequential or of a class of your own. Its class becomes a subclass of
            what it was; its weights, layers and optimizer stay.

    Returns:
        The same object; compile it with `collectors=...`.

    Raises:
        TypeError: it is no Keras model.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> instrument(model) is model
    True
    >>> model.compile("sgd", "mse", collectors="default")
    """
    if isinstance(model, IntrospectiveModel):
        return model
    if not isinstance(model, KerasModel):
        raise TypeError(
            f"instrument() was given {model!r} of type {type(model).__name__}; expected a keras.Model object, such as "
            "keras.applications.ResNet50(weights=None)."
        )
    object.__setattr__(model, "__class__", _instrumented_class(type(model)))  # type: ignore[arg-type]
    return model
