// Weights as integers or e4m3 with scales, rows of a KV cache as integers with scales. Separate
// from
// GraphOps.td, whose header is included nearly everywhere: few files use these.
#ifndef TESSERA_GRAPH_QUANT_OPS
#define TESSERA_GRAPH_QUANT_OPS

include "dialects/graph/GraphOpBase.td"

def Graph_DequantizeOp : Graph_Op<"dequantize",
    [DeclareOpInterfaceMethods<Graph_Costed, ["getFlops", "getBytes"]>, Graph_ShardableOp]> {
  let summary = "dequantizes weights to a matrix";
  let description = [{
    The layout of `values` and `scales` is that of runtime/support/QuantizedLayout.h. Weight (n, k)
    of a matrix [n, k] is scale(n, k / group) × q(n, k), with q of `bits` = 8 or 4 bits. With
    `zeros` it is scale × (q - zero(n, k / group)); `scales` holds a group's zero points after its
    scales. With `floats`, q of 8 bits is e4m3fn, and q of 4 bits the index of a normal float (NF4),
    in groups of 64 whose scales are quantized themselves, or in groups of 32 an e2m1 whose scale is
    a power of two (MXFP4). With `super_blocks` it is d × s × q - dmin × m, with q of 4 or 5 bits,
    or d × s × (q - 32), with q of 6: llama.cpp's K-quants, with `group` = 256, the columns of a
    super-block. With `bits` = 16, `values` are bf16 in micropanels, without scales. The result is
    that matrix, [n, k], or [k, n] if `transposed`, rounded at most to the result's element type. A
    stack of matrices [matrices, n, k], or [matrices, k, n] if `transposed`, with n a multiple of
    16, has the micropanels of one matrix with all n × matrices rows.

    It never becomes a kernel: fusion repeats it in each contraction that reads it, which
    dequantizes values in registers, or multiplies micropanels directly, and in each lookup of its
    rows. Created by `quantize-weights`; only an einsum, for a stack a `graph.grouped_matmul`, or a
    `graph.embedding` (not transposed, nor NF4) may read it.

    ```mlir
    %w = graph.dequantize %q, %s bits 4 group 32 : tensor<48x96x16xi32>, tensor<48x24x16xf16>
      -> tensor<768x768xbf16>
    ```
  }];
  let arguments = (ins StaticShapeTensorOf<[I32, BF16]>:$values,
                       Optional<StaticShapeTensorOf<[F16, I32]>>:$scales,
                       I64Attr:$bits, I64Attr:$group, UnitAttr:$zeros, UnitAttr:$floats,
                       UnitAttr:$super_blocks, UnitAttr:$transposed);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $values (`,` $scales^)? `bits` $bits `group` $group (`zeros` $zeros^)? (`floats` $floats^)?
    (`super_blocks` $super_blocks^)? (`transposed` $transposed^)? attr-dict `:`
    type($values) (`,` type($scales)^)? `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::QuantizedLayout getLayout();
  }];
}

def Graph_QuantizeRowsOp : Graph_Op<"quantize_rows", [Graph_DecomposableOp, Graph_CostedDefault,
    Graph_ShardableOp,
    Graph_InfersShapes<"tensorType(op.getInput()).clone(::mlir::IntegerType::get(context, 8)), "
                       "rowScalesType(op.getInput())">]> {
  let summary = "quantizes rows to int8, each with a scale";
  let description = [{
    Rows extend along the last dimension. `scales` [..., 1] is max |x| / 127 of each row, rounded to
    bf16 whatever its type; `values` is x / scale rounded to the nearest integer, halves away from
    zero, with magnitude at most 127. A row of zeros has scale 0. The result for a row does not
    depend on other rows.
  }];
  let arguments = (ins Graph_FloatTensor:$input);
  let results = (outs StaticShapeTensorOf<[I8]>:$values, Graph_FloatTensor:$scales);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($values) `,` type($scales)";
  let hasVerifier = 1;
}

def Graph_DequantizeRowsOp : Graph_Op<"dequantize_rows",
    [DeclareOpInterfaceMethods<Graph_Costed, ["getFlops", "getBytes"]>, Graph_ShardableOp,
     Graph_InfersShapes<"tensorType(op.getScales()).clone(shapeOf(op.getValues()))">]> {
  let summary = "dequantizes rows of quantize_rows: values × scales";
  let description = [{
    `scales` has the shape of `values`, with last dimension 1. The result is rounded at most to its
    element type.

    It never becomes a kernel: fusion repeats it in the paged attention that reads it, which
    dequantizes the rows that it loads. No other op may read it.

    ```mlir
    %k = graph.dequantize_rows %q, %s : tensor<9x64x8x128xi8>, tensor<9x64x8x1xbf16>
      -> tensor<9x64x8x128xbf16>
    ```
  }];
  let arguments = (ins StaticShapeTensorOf<[I8]>:$values, Graph_FloatTensor:$scales);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $values `,` $scales attr-dict `:` type($values) `,` type($scales) `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif
