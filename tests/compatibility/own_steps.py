"""Train steps, and other methods of the trainer, that users write themselves: further rows of the table."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from compatibility.cases import Case, Kit
from compatibility.constructs import CONSTRUCTS, construct, numbers

__all__ = ["CONSTRUCTS"]  # all of them, these included

OWN = "Steps of one's own"


def _net(name: str, sizes: tuple[int, ...], inputs: int) -> Any:
    chain = [layers.Dense(n, activation="tanh", name=f"{name}_{i}") for i, n in enumerate(sizes[:-1])]
    return keras.Sequential([keras.Input((inputs,)), *chain, layers.Dense(sizes[-1], name=f"{name}_out")], name=name)


def _apply(tape: Any, loss: Any, net: Any, optimizer: Any) -> None:
    gradients = tape.gradient(loss, net.trainable_variables)
    optimizer.apply_gradients(zip(gradients, net.trainable_variables, strict=True))


@construct("`train_step`: one tape, one optimizer", OWN)
def own_train_step(kit: Kit) -> Case:
    class Net(kit.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            _apply(tape, loss, self, self.optimizer)
            return {"loss": loss}

    inputs = keras.Input((4,))
    h = layers.Dense(4, activation="relu", name="hidden")(inputs)
    return Case(Net(inputs, layers.Dense(1, name="head")(h), name="net"), numbers(4), numbers(1))


@construct("A generative adversarial net: two optimizers", OWN)
def gan(kit: Kit) -> Case:
    class Gan(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="gan")
            self.critic, self.maker = _net("critic", (5, 1), 4), _net("maker", (5, 4), 3)

        def compile(self, other: Any, **kwargs: Any) -> None:
            super().compile(**kwargs)
            self.other = other

        def train_step(self, data: Any) -> Any:
            noise, real = data
            loss = keras.losses.BinaryCrossentropy(from_logits=True)
            with tf.GradientTape() as tape:
                fake, true = self.critic(self.maker(noise)), self.critic(real)
                critical = loss(ops.zeros_like(fake), fake) + loss(ops.ones_like(true), true)
            _apply(tape, critical, self.critic, self.optimizer)
            with tf.GradientTape() as tape:
                fake = self.critic(self.maker(noise))
                made = loss(ops.ones_like(fake), fake)
            _apply(tape, made, self.maker, self.other)
            return {"critic": critical, "maker": made}

    return Case(Gan(), numbers(3), numbers(4), {"other": keras.optimizers.SGD(0.1)})


@construct("A Wasserstein net with gradient penalty: nested tapes, three optimizers", OWN)
def gradient_penalty(kit: Kit) -> Case:
    class Penalised(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="wgan")
            self.critic, self.maker = _net("critic", (5, 1), 4), _net("maker", (5, 4), 3)
            self.mixer = _net("mixer", (2, 4), 4)

        def compile(self, others: Any, **kwargs: Any) -> None:
            super().compile(**kwargs)
            self.others = others

        def train_step(self, data: Any) -> Any:
            noise, real = data
            with tf.GradientTape(persistent=True) as tape:
                fake = self.mixer(self.maker(noise))
                between = 0.3 * fake + 0.7 * real
                with tf.GradientTape() as inner:
                    inner.watch(between)
                    score = self.critic(between)
                slope = ops.sqrt(ops.sum(inner.gradient(score, between) ** 2, axis=-1) + 1e-9)
                critical = ops.mean(self.critic(fake)) - ops.mean(self.critic(real)) + ops.mean((slope - 1) ** 2)
                made = -ops.mean(self.critic(fake))
            _apply(tape, critical, self.critic, self.optimizer)
            _apply(tape, made, self.maker, self.others["maker"])
            _apply(tape, made, self.mixer, self.others["mixer"])
            del tape
            return {"critic": critical, "maker": made}

    others = {"maker": keras.optimizers.SGD(0.05), "mixer": keras.optimizers.SGD(0.02)}
    return Case(Penalised(), numbers(3), numbers(4), {"others": others})


@construct("A variational auto-encoder with a sampling layer", OWN)
def variational(kit: Kit) -> Case:
    class Sampling(layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.seed_generator = keras.random.SeedGenerator(7)

        def call(self, inputs: Any) -> Any:
            mean, log_variance = inputs
            return mean + ops.exp(0.5 * log_variance) * keras.random.normal(ops.shape(mean), seed=self.seed_generator)

    class Auto(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="vae")
            self.encoder = layers.Dense(5, activation="relu", name="encoder")
            self.mean, self.spread = layers.Dense(2, name="mean"), layers.Dense(2, name="spread")
            self.sampling = Sampling(name="sampling")
            self.decoder = layers.Dense(4, name="decoder")

        def call(self, x: Any) -> Any:
            h = self.encoder(x)
            mean, spread = self.mean(h), self.spread(h)
            self.add_loss(-0.5 * ops.mean(1 + spread - mean**2 - ops.exp(spread)))
            return self.decoder(self.sampling([mean, spread]))

    x = numbers(4)
    return Case(Auto(), x, x)


@construct("Distillation from a frozen teacher", OWN, partial="no gradient came back to it")
def distillation(kit: Kit) -> Case:
    class Student(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="student")
            self.teacher, self.student = _net("teacher", (6, 3), 4), _net("student_net", (4, 3), 4)
            self.teacher.trainable = False

        def call(self, x: Any) -> Any:
            return self.student(x)

        def train_step(self, data: Any) -> Any:
            x, _ = data
            target = self.teacher(x, training=False)
            with tf.GradientTape() as tape:
                loss = keras.losses.kl_divergence(ops.softmax(target), ops.softmax(self.student(x, training=True)))
                loss = ops.mean(loss)
            _apply(tape, loss, self.student, self.optimizer)
            return {"loss": loss}

    return Case(Student(), numbers(4), numbers(1))


# Some of its sums are added up in the order in which TensorFlow's threads come to them.
@construct("Contrastive learning: two augmented passes", OWN, partial="no gradient came back to it", repeatable=False)
def contrastive(kit: Kit) -> Case:
    class Contrast(kit.Model):
        def __init__(self) -> None:
            super().__init__(name="contrast")
            self.augment = layers.GaussianNoise(0.2, seed=3, name="augment")
            self.encoder = layers.Dense(5, activation="relu", name="encoder")
            self.projector = layers.Dense(3, name="projector")

        def call(self, x: Any, training: bool = False) -> Any:
            return self.projector(self.encoder(self.augment(x, training=training)))

        def train_step(self, data: Any) -> Any:
            x, _ = data
            with tf.GradientTape() as tape:
                one, two = self(x, training=True), self(x, training=True)
                loss = ops.mean((one - two) ** 2) - 0.1 * ops.mean(one * one)
            _apply(tape, loss, self, self.optimizer)
            return {"loss": loss}

    return Case(Contrast(), numbers(4), numbers(1))


def _overriding(kit: Kit, **methods: Any) -> Case:
    base = kit.Model
    net = type("Net", (base,), {name: make(base) for name, make in methods.items()})
    inputs = keras.Input((4,))
    h = layers.Dense(4, activation="relu", name="hidden")(inputs)
    return Case(net(inputs, layers.Dense(1, name="head")(h), name="net"), numbers(4), numbers(1))


@construct("A subclass that overrides `compute_loss`", OWN)
def own_compute_loss(kit: Kit) -> Case:
    def make(base: Any) -> Any:
        def compute_loss(
            self: Any, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: Any = True
        ) -> Any:
            return ops.mean(ops.abs(y - y_pred)) + sum(self.losses)

        return compute_loss

    return _overriding(kit, compute_loss=make)


@construct("A subclass that overrides `compile` and `fit`", OWN)
def own_compile_and_fit(kit: Kit) -> Case:
    def make_compile(base: Any) -> Any:
        def compile(self: Any, **kwargs: Any) -> None:
            base.compile(self, **{**kwargs, "loss": "mae"})

        return compile

    def make_fit(base: Any) -> Any:
        def fit(self: Any, x: Any, y: Any, **kwargs: Any) -> Any:
            return base.fit(self, x, np.tanh(y), **kwargs)

        return fit

    return _overriding(kit, compile=make_compile, fit=make_fit)


@construct("A subclass that overrides `make_train_function`", OWN)
def own_make_train_function(kit: Kit) -> Case:
    def make(base: Any) -> Any:
        def make_train_function(self: Any, force: bool = False) -> Any:
            if self.train_function is not None and not force:
                return self.train_function

            def one_step(iterator: Any) -> Any:
                return self.train_step(next(iterator))

            self.train_function = one_step if self.run_eagerly else tf.function(one_step, reduce_retracing=True)
            return self.train_function

        return make_train_function

    return _overriding(kit, make_train_function=make)
