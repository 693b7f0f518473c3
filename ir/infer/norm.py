"""Shapes of normalisations that have more than one output."""

from __future__ import annotations

from gecompiler.ir.infer.node import Node, PartialShape, Rule, Shapes


def layer_normalization(node: Node) -> Shapes:
    """The output like the input; mean and inverse deviation with the normalised axes as 1."""
    shape = node.shape(0)
    if shape is None:
        return (None,) * len(node.op.outputs)
    axis = node.axis(len(shape), -1)
    moments: PartialShape = tuple(d if i < axis else 1 for i, d in enumerate(shape))
    return (shape, moments, moments)[: len(node.op.outputs)]


def batch_normalization(node: Node) -> Shapes:
    """The output like the input; running (and, before opset 14, saved) moments per channel."""
    shape = node.shape(0)
    channels: PartialShape = (None,)
    if shape is not None and len(shape) > 1:
        channels = shape[1:2]
    for index in (1, 2, 3, 4):
        given = node.shape(index)
        if given is not None and len(given) != 1:
            node.fail("scale, bias, mean and variance of BatchNormalization have rank 1")
        if given is not None:
            channels = (node.same(channels[0], given[0], "the number of channels"),)
    return (shape, *(channels for _ in node.op.outputs[1:]))


RULES: dict[str, Rule] = {
    "LayerNormalization": layer_normalization,
    "BatchNormalization": batch_normalization,
}
