"""Training steps."""

from __future__ import annotations

TEXTS = {
    "in opset {} has no gradient here, from 16 on it has": "在 opset {} 中没有实现梯度，从 16 起才有",
    "with storage_order has no gradient here": "带 storage_order 时没有实现梯度",
    "Training step: {tensors} tensors in {buckets} buckets, {count} parameters a card, optimizer {optimizer}": "训练步：{tensors} 个张量分在 {buckets} 个桶中，每张卡 {count} 个参数，优化器 {optimizer}",
    "Training step: {tensors} tensors, {count} parameters, optimizer {optimizer}": "训练步：{tensors} 个张量，{count} 个参数，优化器 {optimizer}",
    "Of rank {rank}, which computes longest:": "计算时间最长的 rank {rank}：",
    "forward": "前向",
    "recomputed": "重计算",
    "backward": "反向",
    "gradient sync": "梯度同步",
    "optimizer": "优化器",
    "busy time         {parts}": "忙碌时间          {parts}",
    "is of training steps": "只用于训练步",
    "keys that go round (ring) have no gradient: they are gathered": "逐卡传递的 key（ring）没有梯度：改为收集（gather）",
    "give --sequence-exchange gather or all-to-all in training": "训练时请用 --sequence-exchange gather 或 all-to-all",
    "give --train as well": "请同时给出 --train",
    "option '{}' changes nothing: {} is 1": "选项 '{}' 不起作用：{} 为 1",
    "give --{} N as well": "请同时给出 --{} N",
    "a batch of {} cannot be cut into {} micro-batches": "批大小 {} 不能切成 {} 个微批",
    "give a batch that is a multiple of it (--batch)": "请给出它的倍数作为批大小（--batch）",
    "Compile a training step of the model.": "编译模型的一个训练步。",
    "Its optimiser (default: adamw).": "它的优化器（默认：adamw）。",
    "What the backward pass computes again (default: none).": "反向计算中重计算什么（默认：none）。",
    "The loss (default: as the output is).": "损失函数（默认：由输出决定）。",
    "The output that the loss is of.": "计算损失的输出。",
    "What replicas (--dp) share: optimiser state, gradients, parameters (ZeRO).": "各副本（--dp）分摊什么：优化器状态、梯度、参数（ZeRO）。",
    "Gradients that replicas sum at once (default: 25).": "各副本一次求和的梯度大小（默认：25）。",
    "the words have {} axes, expected one": "词表编号有 {} 个轴，应为一个",
    "has no gradient here for its log-sum-exp (keys in parts)": "此处没有其 log-sum-exp 的梯度（key 分成几段）",
}
