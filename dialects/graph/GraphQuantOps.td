// Weights as integers or e4m3 with scales, rows of a cache as integers with scales. Apart from GraphOps.td, whose header nearly
// everything includes: few make or look at these.
#ifndef TESSERA_GRAPH_QUANT_OPS
#define TESSERA_GRAPH_QUANT_OPS

include "dialects/graph/GraphOpBase.td"

def Graph_DequantizeOp : Graph_Op<"dequantize",
    [DeclareOpInterfaceMethods<Graph_Costed, ["getFlops", "getBytes"]>]> {
  let summary = "the matrix that quantized weights stand for";
  let description = [{
    `values` and `scales` lie as runtime/support/QuantizedLayout.h says: weight (n, k) of a matrix [n, k] is
    scale(n, k / group) × q(n, k), with q of `bits` = 8 or 4 bits; with `zeros` scale × (q - zero(n, k / group)), where
    `scales` holds a group's zero points behind its scales; with `floats` q of 8 bits is e4m3fn; or, of `bits` = 16, the
    bf16 (n, k) that `values` has in micropanels, without scales. The result is that matrix, [n, k], or [k, n]
    where it is `transposed`, rounded to the result's element type at most. Or a stack of matrices, [matrices, n, k] with n a
    multiple of 16: then micropanels are those of one matrix of all their rows.

    It never becomes a kernel: fusion repeats it in each contraction that reads it, which brings
    values into registers, or multiplies micropanels as they are. Made by `quantize-weights`; nothing but an einsum or, of a
    stack, a `graph.grouped_matmul` reads it.

    ```mlir
    %w = graph.dequantize %q, %s bits 4 group 32 : tensor<48x96x16xi32>, tensor<48x24x16xf16> -> tensor<768x768xbf16>
    ```
  }];
  let arguments = (ins StaticShapeTensorOf<[I32, BF16]>:$values, Optional<StaticShapeTensorOf<[F16]>>:$scales,
                       I64Attr:$bits, I64Attr:$group, UnitAttr:$zeros, UnitAttr:$floats, UnitAttr:$transposed);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $values (`,` $scales^)? `bits` $bits `group` $group (`zeros` $zeros^)? (`floats` $floats^)? (`transposed` $transposed^)? attr-dict
    `:` type($values) (`,` type($scales)^)? `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::QuantizedLayout getLayout();
  }];
}

def Graph_QuantizeRowsOp : Graph_Op<"quantize_rows", [Graph_DecomposableOp, Graph_CostedDefault]> {
  let summary = "rows as int8, each with a scale";
  let description = [{
    A row is what the last dimension holds. `scales` [..., 1] has max |x| / 127 of each row, rounded to bf16 whatever its
    type, and `values` x / scale rounded to the nearest integer, halves away from zero: at most 127 in size. A row of
    zeros has the scale 0. Each row is rounded by itself, so that it is the same among any others.
  }];
  let arguments = (ins Graph_FloatTensor:$input);
  let results = (outs StaticShapeTensorOf<[I8]>:$values, Graph_FloatTensor:$scales);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($values) `,` type($scales)";
  let hasVerifier = 1;
}

def Graph_DequantizeRowsOp : Graph_Op<"dequantize_rows",
    [DeclareOpInterfaceMethods<Graph_Costed, ["getFlops", "getBytes"]>]> {
  let summary = "the rows that quantize_rows had: values × scales";
  let description = [{
    `scales` is as `values`, of 1 in the last dimension. The result is rounded to its element type at most.

    It never becomes a kernel: fusion repeats it in the paged attention that reads it, which widens the rows that it
    sees. Nothing else reads it.

    ```mlir
    %k = graph.dequantize_rows %q, %s : tensor<9x64x8x128xi8>, tensor<9x64x8x1xbf16> -> tensor<9x64x8x128xbf16>
    ```
  }];
  let arguments = (ins StaticShapeTensorOf<[I8]>:$values, Graph_FloatTensor:$scales);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$values `,` $scales attr-dict `:` type($values) `,` type($scales) `->` type($result)";
  let hasVerifier = 1;
}

#endif
