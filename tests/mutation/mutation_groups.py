"""What is mutated, and the tests that are to notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """Sources as patterns within the installed package, and test files."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


GROUPS = {
    "sync": Group(
        (
            "gecompiler/passes/streams/sync.py",
            "gecompiler/passes/streams/sync_points.py",
            "gecompiler/passes/streams/wait_merging.py",
            "gecompiler/passes/streams/event_ids.py",
        ),
        (
            "tests/passes/streams/test_sync.py",
            "tests/passes/streams/test_sync_points.py",
            "tests/passes/streams/test_wait_merging.py",
            "tests/passes/streams/test_event_ids.py",
        ),
    ),
    "verifier": Group(
        ("gecompiler/ir/schedule_verify/*.py",),
        (
            "tests/ir/test_schedule_verify.py",
            "tests/ir/test_schedule_verify_messages.py",
            "tests/ir/test_schedule_cores.py",
            "tests/ir/test_collectives_mutations.py",
            "tests/passes/streams/test_verify_mutations.py",
            "tests/passes/streams/test_verify_collectives.py",
        ),
    ),
    "memory": Group(
        ("gecompiler/passes/memory/*.py",),
        (
            "tests/passes/test_memory_plan.py",
            "tests/passes/test_memory_blocks.py",
            "tests/passes/test_memory_fit.py",
            "tests/passes/test_gather.py",
        ),
    ),
    "simulator": Group(
        ("gecompiler/backends/simulator/*.py",),
        (
            "tests/backends/test_simulator.py",
            "tests/backends/test_simulator_collectives.py",
            "tests/backends/test_simulator_phases.py",
            "tests/backends/test_simulator_properties.py",
            "tests/backends/test_simulator_share.py",
        ),
    ),
    "attention": Group(
        ("gecompiler/passes/attention/*.py",),
        (
            "tests/passes/attention/test_anchors.py",
            "tests/passes/attention/test_attention_op.py",
            "tests/passes/attention/test_contraction.py",
            "tests/passes/attention/test_contrib_ops.py",
            "tests/passes/attention/test_element_rules.py",
            "tests/passes/attention/test_elements.py",
            "tests/passes/attention/test_expand.py",
            "tests/passes/attention/test_fuse_forms.py",
            "tests/passes/attention/test_kv_cache.py",
            "tests/passes/attention/test_layout.py",
            "tests/passes/attention/test_linear.py",
            "tests/passes/attention/test_magnitude_rules.py",
            "tests/passes/attention/test_magnitudes.py",
            "tests/passes/attention/test_mask_emission.py",
            "tests/passes/attention/test_masks.py",
            "tests/passes/attention/test_metamorphic.py",
            "tests/passes/attention/test_narrowing.py",
            "tests/passes/attention/test_partials.py",
            "tests/passes/attention/test_pieces.py",
            "tests/passes/attention/test_predicates.py",
            "tests/passes/attention/test_probabilities.py",
            "tests/passes/attention/test_refusals.py",
        ),
    ),
}
