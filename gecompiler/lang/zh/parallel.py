"""Notes on how a model is shared out over ranks, and the options for it, in Chinese."""

from __future__ import annotations

TEXTS = {
    "{}: {}: no input has samples that stay apart": "{}：{}：没有哪个输入的各样本始终互不相关",
    "{}: {}: no attention has several queries": "{}：{}：没有哪个注意力有多个 query",
    "{}: {}: its heads are not cut: {} needs them whole": "{}：{}：它的头不切分：{} 需要全部的头",
    "{}: {}: KV heads are made whole: {} needs them whole": "{}：{}：KV 头不切分：{} 需要全部的头",
    "{}: {}: {} query heads with {} KV heads are not cut over {} ranks: a rank's would straddle KV heads": "{}：{}：{} 个 query 头对 {} 个 KV 头，不在 {} 个 rank 间切分：一个 rank 的头会跨越 KV 头",
    "{}: {}: {} ranks need each KV head ({}): held by all of them their weights take {} bytes a rank; made in parts {}, but each rank then gathers {} bytes a step": "{}：{}：每个 KV 头有 {} 个 rank 需要（{}）：各自持有时权重每个 rank 占 {} 字节；分段计算时占 {} 字节，但每个 rank 每步要收集 {} 字节",
    "{}: {}: experts are not shared out: {}": "{}：{}：各专家没有分开：{}",
    "{}: {}: no experts to share out": "{}：{}：没有可分开的专家",
    "{}: {}: {} experts are not shared out over {} ranks": "{}：{}：{} 个专家没有分给 {} 个 rank",
    "{} experts are not shared out over {} ranks": "{} 个专家没有分给 {} 个 rank",
    "{}: {}: {} rows stay whole: {} of them are looked up": "{}：{}：{} 行不切分：只查其中 {} 行",
    "{}: {}: it would be cut in two ways, and stays whole": "{}：{}：它会有两种切法，因此不切分",
    "{}: {}: {} runs whole on every rank: {}": "{}：{}：{} 在每个 rank 上都完整执行：{}",
    "no rule says what {} does with dims": "没有规则说明 {} 如何处理各维",
    "{} has no static shape": "{} 没有静态形状",
    "{}: {}: keys are gathered: {} tokens for {} ranks": "{}：{}：收集全部的 key：{} 个 token 对 {} 个 rank",
    "{}: {}: keys are gathered: the mask differs between heads": "{}：{}：收集全部的 key：各头的掩码不同",
    "{}: {}: keys are gathered: a rank's heads would straddle KV heads": "{}：{}：收集全部的 key：一个 rank 的头会跨越 KV 头",
    "{}: {}: keys are gathered: log-sum-exp or sinks are not exchanged": "{}：{}：收集全部的 key：不交换 log-sum-exp 或 sink",
    "{}: {}: keys are gathered: log-sum-exp or sinks do not go round": "{}：{}：收集全部的 key：log-sum-exp 或 sink 不沿环传递",
    "{}: {}: keys are gathered: {} heads ({} of keys) for {} ranks": "{}：{}：收集全部的 key：{} 个头（{} 个 KV 头）对 {} 个 rank",
    "keys that go round need {} streams a card, found {}": "key 沿环传递时每张卡需要 {} 条流，给出的是 {}",
    "more streams, or --sequence-exchange gather": "更多的流，或 --sequence-exchange gather",
    "How queries see the keys of other cards, with --sp (default: gather).": "有 --sp 时 query 如何用到其他卡的 key（默认：gather）。",
    "KV heads that are fewer than the cards of --tp (default: replicate).": "比 --tp 的卡数少的 KV 头（默认：replicate）。",
    "Tables of embeddings on the cards of --tp (default: replicate).": "词嵌入表在 --tp 各卡上的放法（默认：replicate）。",
    "'gather', 'ring' or 'all-to-all'": "'gather'、'ring' 或 'all-to-all'",
    "'replicate' or 'split'": "'replicate' 或 'split'",
    "sp: how queries see the keys of other cards: these are gathered, go round from card to card, or heads are exchanged for tokens and back. Where one cannot be, keys are gathered.": "sp：query 如何用到其他卡的 key：收集全部的 key，让 key 在各卡间沿环传递，或在头与 token 之间互换。做不到时收集全部的 key。",
    "tp: KV heads that are fewer than the cards: held by several of them, or made in equal parts by all and gathered.": "tp：比卡数少的 KV 头：由几张卡各自持有，或由所有卡等分计算再收集。",
    "tp: tables of embeddings: whole on every card, or cut by words, which costs an all-reduce of what is looked up.": "tp：词嵌入表：每张卡都有整张表，或按词切分，代价是对查得的结果做一次 all-reduce。",
}
"""English templates and their Chinese ones."""
