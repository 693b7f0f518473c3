r"""The text form of a graph: the debugger, the language of tests, the bug report.

For example::

    graph @sample (opset 17, com.microsoft 1) {
      metadata "author" = "somebody"
      input %x: f32[batch, 2]
      input %cond: bool[]
      input %past: f32[batch, n]
      const %w: f32[2, 2] = [[1.0, 2.0], [3.0, 4.0]]
      const %big: f16[4096, 4096] = absent
      %y: f32[batch, 2] = MatMul(%x, %w) @"/fc/MatMul" {alpha = 0.1f, axes = [0, 1]} scope "/fc"
      %a, %b = Split(%y, _)                      // _ is an optional input or output left out
      %c = com.microsoft.Gelu(%a)
      %d: f32[*] = If(%cond) {then_branch = graph @then {
        outer %a: f32[n]                         // a value of the graph around it
        return %a
      }}
      %present: f32[batch, n + 1] = Concat(%past, %b) {axis = 1}
      control @c -> @d                           // ops that data does not order
      state %past -> %present axis 1             // memory that outlives a run
      return %y, %d, %present
    }

Names that are not made of letters, digits, ``_`` and ``.`` are quoted with JSON's escapes:
``%"/m/x"``. Line ends mean nothing, statements may come in any order (but ``return`` last),
and ops may be used before they are written. What may be left out: the name after ``graph``;
the opsets (20, or those of the graph around it); a type; an op's name, which then is that of
its first output, or its type, with a number behind where that is taken.

Types: element type and sizes, ``f32[batch, 2*n + 1]``; ``f32[]`` is a scalar, ``f32[*]`` of
unknown rank; sequences, maps and such are ``opaque "text" b"proto"``. Attributes: ``1``,
``1.0``, ``0.1f`` (the float32 nearest to 0.1), ``"text"``, ``b"\x00"``, ``[1, 2]``, a tensor
``f32[2] [1.0, 2.0]``, a graph. Notes behind an op: ``scope``, ``group``, ``label``,
``priority``, ``cube_cores``, ``vector_cores``, ``data_sized``, ``sources ["a"]``,
``phase``. Data: see `text_data`; data
in a file is not part of the text, and reads back as a constant that says where it was.

Parsing what was printed gives an equal graph. Ops are printed in topological order.
"""

from gecompiler.ir.text.lexer import TextError
from gecompiler.ir.text.parse import parse
from gecompiler.ir.text.print import print_graph

__all__ = ["TextError", "parse", "print_graph"]
