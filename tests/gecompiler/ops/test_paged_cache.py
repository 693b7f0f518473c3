"""The paged cache against a dictionary of arrays: stateful, and over long random traces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gecompiler.ir.errors import UsageError
from gecompiler.ops.paged_attention import (
    CacheFullError,
    ContiguousKVCache,
    PagedAttentionConfig,
    PagedKVCache,
    flash_attention_with_paged_kv,
)
from gecompiler.ops.paged_attention.arena import Arena


def tokens(rng, count, config):
    """Keys and values (1, S, N, D) that no other token has."""
    heads, dtype = config.kv_head_num, config.element_type
    return [
        rng.normal(size=(1, count, heads, width)).astype(dtype)
        for width in (config.head_dim, config.value_dim)
    ]


class Model:
    """What a cache is to hold: each sequence's keys and values, one after the other."""

    def __init__(self):
        self.held = {}

    def append(self, name, key, value):
        before = self.held.get(name)
        if before is not None:
            key, value = (np.concatenate(p) for p in zip(before, (key, value), strict=True))
        self.held[name] = (key, value)

    def fork(self, parent, child, length):
        self.held[child] = tuple(a[:length] for a in self.held[parent])

    def check(self, cache, names=None):
        assert cache.sequences == tuple(self.held)
        for name in self.held if names is None else names:
            assert cache.length(name) == len(self.held[name][0])
            for found, want in zip(cache.gather(name), self.held[name], strict=True):
                np.testing.assert_array_equal(found, want)


def check_pages(cache):
    """No page is lost, and none is held by another than the tables say."""
    size, holders = cache.config.page_size, {}
    for name in cache.sequences:
        table = cache.page_table(name).tolist()
        assert len(table) == -(-cache.length(name) // size)
        assert len(set(table)) == len(table)
        for place, page in enumerate(table):
            holders.setdefault(page, []).append(place)
    assert len(holders) + cache.num_free_pages == cache.config.max_num_pages
    assert all(cache.holders(page) == len(places) for page, places in holders.items())
    assert all(len(set(places)) == 1 for places in holders.values())  # shared as a prefix only
    free = [p for p in range(cache.config.max_num_pages) if p not in holders]
    assert not any(cache.holders(page) for page in free)


def pages_for(cache, counts):
    """Pages that appending needs, copies of shared ones included: the definition, by hand."""
    size, needed, writers = cache.config.page_size, 0, {}
    for name, count in counts:
        length = cache.length(name) if name in cache.sequences else 0
        needed += -(-(length + count) // size) - -(-length // size)
        if count and length % size:
            page = int(cache.page_table(name)[-1])
            writers[page] = writers.get(page, 0) + 1
    return needed + sum(min(n, cache.holders(p) - 1) for p, n in writers.items())


NAMES = st.sampled_from([0, 1, 2, "a", "b"])


class PagedCacheMachine(RuleBasedStateMachine):
    @initialize(page_size=st.sampled_from([1, 2, 3, 8]), pages=st.integers(1, 12))
    def start(self, page_size, pages):
        self.config = PagedAttentionConfig(4, 3, page_size, pages, "float32", 2, v_head_dim=2)
        self.cache, self.model = PagedKVCache(self.config), Model()
        self.rng = np.random.default_rng(0)

    @rule(names=st.lists(NAMES, unique=True, min_size=1, max_size=3), count=st.integers(0, 9))
    def append(self, names, count):
        parts = [tokens(self.rng, count, self.config) for _ in names]
        key, value = (np.concatenate(p) for p in zip(*parts, strict=True))
        needed = pages_for(self.cache, [(name, count) for name in names])
        if needed > self.cache.num_free_pages:
            with pytest.raises(CacheFullError) as raised:
                self.cache.append(key, value, names)
            assert (raised.value.needed, raised.value.free) == (needed, self.cache.num_free_pages)
            return
        free = self.cache.num_free_pages
        self.cache.append(key, value, names)
        assert free - self.cache.num_free_pages == needed
        for name, k, v in zip(names, key, value, strict=True):
            self.model.append(name, k, v)

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), child=NAMES)
    def fork(self, data, child):
        parent = data.draw(st.sampled_from(list(self.model.held)))
        length = data.draw(st.integers(0, self.cache.length(parent)))
        if child in self.model.held:
            with pytest.raises(UsageError):
                self.cache.fork(parent, child, length)
            return
        free = self.cache.num_free_pages
        self.cache.fork(parent, child, length)
        assert self.cache.num_free_pages == free
        self.model.fork(parent, child, length)

    @rule(name=NAMES)
    def free(self, name):
        if name not in self.model.held:
            with pytest.raises(UsageError):
                self.cache.free(name)
            return
        self.cache.free(name)
        del self.model.held[name]

    @precondition(lambda self: self.model.held)
    @rule(data=st.data())
    def truncate(self, data):
        name = data.draw(st.sampled_from(list(self.model.held)))
        length = data.draw(st.integers(0, self.cache.length(name)))
        self.cache.truncate(name, length)
        self.model.held[name] = tuple(a[:length] for a in self.model.held[name])

    @precondition(lambda self: self.model.held)
    @rule(data=st.data(), queries=st.integers(1, 4), block=st.sampled_from([1, 2, 3, 8]))
    def attend(self, data, queries, block):
        name = data.draw(st.sampled_from(list(self.model.held)))
        query = self.rng.normal(size=(1, queries, 4, 3)).astype(np.float32)
        options = {"is_causal": True, "block_size_q": 2, "block_size_k": block}
        found = flash_attention_with_paged_kv(query, self.cache, 4, name, **options)
        plain = PlainCache(self.config, self.model.held)
        want = flash_attention_with_paged_kv(query, plain, 4, name, **options)
        np.testing.assert_array_equal(found, want)

    @invariant()
    def holds_what_it_should(self):
        self.model.check(self.cache)
        check_pages(self.cache)
        usage = self.cache.usage()
        assert usage.tokens == sum(len(k) for k, _ in self.model.held.values())
        held = self.config.max_num_pages - self.cache.num_free_pages
        assert usage.reserved == held * self.config.page_size
        slots = {
            (
                int(self.cache.page_table(name)[i // self.config.page_size]),
                i % self.config.page_size,
            )
            for name in self.cache.sequences
            for i in range(self.cache.length(name))
        }
        assert usage.stored == len(slots)


class PlainCache:
    """The model's arrays as a cache that attention can read."""

    def __init__(self, config, held):
        self.config, self.held = config, held
        self.sequences = tuple(held)

    def length(self, name):
        return len(self.held[name][0])

    def tensors(self, name):
        return tuple(a[None].swapaxes(1, 2) for a in self.held[name])


TestPagedCacheMachine = PagedCacheMachine.TestCase
TestPagedCacheMachine.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)


def run_trace(events, *, pages=256, page_size=8, check_every=1000, seed=0):
    """Appends, forks and frees at random, many when the cache runs full; returns the counts."""
    rng = np.random.default_rng(seed)
    config = PagedAttentionConfig(2, 4, page_size, pages, "float32", 1)
    cache, model, done = (
        PagedKVCache(config),
        Model(),
        {"append": 0, "fork": 0, "free": 0, "full": 0},
    )
    number = 0
    for event in range(events):
        names = list(model.held)
        kind = rng.choice(["append", "fork", "free"], p=[0.8, 0.1, 0.1])
        name = names[rng.integers(len(names))] if names else None
        if kind == "fork" and names:
            length = int(rng.integers(cache.length(name) + 1))
            cache.fork(name, number, length)
            model.fork(name, number, length)
            number += 1
        elif kind == "free" and names:
            cache.free(name)
            del model.held[name]
        else:
            kind = "append"
            if name is None or rng.random() < 0.1:
                name, number = number, number + 1
            count = int(rng.choice([1, 1, 1, 1, 2, 7, 8, 30]))
            key, value = tokens(rng, count, config)
            try:
                cache.append(key, value, name)
                model.append(name, key[0], value[0])
            except CacheFullError:
                kind = "full"
                for victim in names[:: max(1, len(names) // 4)]:
                    cache.free(victim)
                    del model.held[victim]
        done[kind] += 1
        if (event + 1) % check_every == 0:
            model.check(cache)
            check_pages(cache)
            check_attention(rng, cache, model)
    for name in list(model.held):
        cache.free(name)
    assert cache.num_free_pages == pages
    return done


def check_attention(rng, cache, model):
    """The numbers of a few sequences, against attention over the model's arrays."""
    plain = PlainCache(cache.config, model.held)
    for name in list(model.held)[:3]:
        query = rng.normal(size=(1, 2, 2, 4)).astype(np.float32)
        found = flash_attention_with_paged_kv(query, cache, 2, name, is_causal=True)
        want = flash_attention_with_paged_kv(query, plain, 2, name, is_causal=True)
        np.testing.assert_array_equal(found, want)


def test_a_random_trace_loses_and_shares_no_page():
    done = run_trace(6_000)
    assert min(done.values()) > 30


@pytest.mark.slow
def test_a_random_trace_of_a_hundred_thousand_events():
    done = run_trace(100_000, seed=1)
    assert min(done.values()) > 300


def test_what_does_not_fit_changes_nothing():
    config = PagedAttentionConfig(2, 4, page_size=4, max_num_pages=5, dtype="float32")
    rng, cache, model = np.random.default_rng(0), PagedKVCache(config), Model()
    for name, count in (("a", 10), ("b", 4)):
        key, value = tokens(rng, count, config)
        cache.append(key, value, name)
        model.append(name, key[0], value[0])
    tables = [cache.page_table(name).tolist() for name in "ab"]
    key, value = (np.concatenate([a, a]) for a in tokens(rng, 3, config))
    with pytest.raises(CacheFullError, match="need 2 pages of 4, 1 of 5 are free"):
        cache.append(key, value, ["a", "b"])  # each alone would fit
    with pytest.raises(UsageError, match="cache float32"):
        cache.append(key.astype(np.float16), value, ["a", "b"])
    with pytest.raises(UsageError, match="named twice"):
        cache.append(key, value, ["a", "a"])
    with pytest.raises(UsageError, match=r"key has 1 heads.*expected 2"):
        cache.append(key[:, :, :1], value, ["a", "b"])
    model.check(cache)
    assert [cache.page_table(name).tolist() for name in "ab"] == tables
    cache.append(key[:1], value[:1], "b")
    assert cache.num_free_pages == 0


def test_the_last_holder_of_a_shared_page_writes_to_it_without_a_copy():
    config = PagedAttentionConfig(1, 2, page_size=4, max_num_pages=2, dtype="float32")
    rng, cache, model = np.random.default_rng(0), PagedKVCache(config), Model()
    key, value = tokens(rng, 2, config)
    cache.append(key, value, 0)
    model.append(0, key[0], value[0])
    cache.fork(0, 1)
    model.fork(0, 1, 2)
    parts = [tokens(rng, 1, config) for _ in range(2)]
    key, value = (np.concatenate(p) for p in zip(*parts, strict=True))
    cache.append(key, value, [0, 1])  # two pages do for both
    for name in (0, 1):
        model.append(name, key[name], value[name])
    model.check(cache)
    assert cache.usage().copies == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 0}, "num_heads must be a positive integer"),
        ({"page_size": 2.5}, "page_size must be a positive integer"),
        ({"kv_heads": 3}, "no multiple"),
        ({"dtype": "int8"}, "float type"),
        ({"dtype": "nonsense"}, "float type"),
    ],
)
def test_configurations_that_make_no_sense(arguments, message):
    with pytest.raises(UsageError, match=message):
        PagedAttentionConfig(**{"num_heads": 4, "head_dim": 8, **arguments})


def test_a_pool_larger_than_the_device_is_refused():
    config = PagedAttentionConfig(64, 128, 16, 2048 * 64)
    with pytest.raises(UsageError, match=r"64\.0 GiB, ascend910 has 32"):
        PagedKVCache(config, device="ascend910")


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda cache: cache.fork("s", "t", 2.5), "has 5 tokens, not 2.5"),
        (lambda cache: cache.fork("s", "t", 6), "has 5 tokens, not 6"),
        (lambda cache: cache.fork("s", "s"), "cached already"),
        (lambda cache: cache.fork("s", True), "integer or text"),
        (lambda cache: cache.length(["s"]), "integer or text"),
        (lambda cache: cache.free("r"), "'r' is not cached"),
        (lambda cache: cache.append(np.zeros((2, 1, 1, 2)), np.zeros((2, 1, 1, 2))), "float64"),
    ],
)
@pytest.mark.parametrize("kind", [PagedKVCache, ContiguousKVCache])
def test_mistakes_are_named(kind, mistake, message):
    config = PagedAttentionConfig(1, 2, page_size=4, max_num_pages=8, dtype="float32")
    cache = kind(config)
    cache.append(*tokens(np.random.default_rng(0), 5, config), "s")
    with pytest.raises(UsageError, match=message):
        mistake(cache)
    assert (cache.sequences, cache.length("s")) == (("s",), 5)


@pytest.mark.parametrize("growth", ["double", "exact", 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_contiguous_cache_holds_the_same(growth, seed):
    rng = np.random.default_rng(seed)
    config = PagedAttentionConfig(2, 3, page_size=4, max_num_pages=40, dtype="float16")
    cache, model, full = ContiguousKVCache(config, growth, reserve=3), Model(), 0
    for number in range(400):
        names = list(model.held)
        kind = rng.choice(["append", "append", "append", "fork", "free"]) if names else "append"
        name = names[rng.integers(len(names))] if names and rng.random() < 0.8 else number
        try:
            if kind == "append":
                key, value = tokens(rng, int(rng.integers(0, 7)), config)
                cache.append(key, value, name)
                model.append(name, key[0], value[0])
            elif kind == "fork":
                length = int(rng.integers(cache.length(names[0]) + 1))
                cache.fork(names[0], number, length)
                model.fork(names[0], number, length)
            elif name in model.held:
                cache.free(name)
                del model.held[name]
        except CacheFullError:
            full += 1
            cache.free(names[0])
            del model.held[names[0]]
        model.check(cache)
        usage = cache.usage()
        assert usage.stored <= usage.reserved <= usage.capacity
        assert usage.largest_free <= usage.capacity - usage.reserved
    for name in list(model.held):
        cache.free(name)
    assert full
    assert (cache.usage().reserved, cache.usage().largest_free) == (0, 160)


def test_growth_says_how_often_tokens_are_copied():
    config = PagedAttentionConfig(1, 1, page_size=16, max_num_pages=256, dtype="float32")
    counts = {}
    for growth in ("exact", "double", 32):
        cache = ContiguousKVCache(config, growth)
        for _ in range(256):
            cache.append(*tokens(np.random.default_rng(0), 1, config), "a")
        counts[growth] = cache.usage().copied_bytes // config.token_bytes
    # sums of 1..255, of 1, 2, 4 .. 128, and of 1, 33, 65 .. 225
    assert counts == {"exact": 255 * 128, "double": 255, 32: sum(range(1, 226, 32))}


def test_stretches_join_when_given_back():
    rng, arena, taken = np.random.default_rng(0), Arena(100), []
    for _ in range(2000):
        if taken and rng.random() < 0.5:
            arena.give_back(*taken.pop(rng.integers(len(taken))))
        else:
            length = int(rng.integers(1, 20))
            start = arena.take(length)
            slots = {s for at, n in taken for s in range(at, at + n)}
            if start is None:
                runs = "".join(" " if s in slots else "x" for s in range(100)).split()
                assert max(map(len, runs), default=0) < length
            else:
                assert not slots & set(range(start, start + length))
                taken.append((start, length))
        assert arena.free == 100 - sum(n for _, n in taken)
    for stretch in taken:
        arena.give_back(*stretch)
    assert arena.largest == 100
