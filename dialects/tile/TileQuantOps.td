// Matmuls with weights that are integers or e4m3 with scales. Apart from TileOps.td, whose header
// most of passes/kernels and the targets include; few of them use these ops.
#ifndef TESSERA_TILE_QUANT_OPS
#define TESSERA_TILE_QUANT_OPS

include "dialects/tile/TileDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_MmaQuantizedOp : Op<Tile_Dialect, "mma_quantized",
                             [Pure, AllTypesMatch<["accumulator", "result"]>]> {
  let summary = "multiplies a tile by quantized weights (integers or e4m3 with scales)";
  let description = [{
    `lhs` m×k of bf16 or f32, `accumulator` m×n of f32. The n weights of each of k terms are laid
    out as in runtime/support/QuantizedLayout.h: `words` [n / 16, 16 k · bits / 32] and `scales`
    [n / 16, 16 · groups], twice as many with `zeros`. `groups` counts those of the k terms, or is 1
    if all terms are in one. A weight is
    scale × (q - zero), with q of `bits` = 8 or 4 bits; with `floats` scale × q, q of 8 bits e4m3fn.

    With `splits` S (split-K within a block) the accumulator has S m rows: rows s m to s m + m - 1
    are sums over part s of the terms, which the reader adds up. So there may be more warps than
    tiles of columns.

    q - zero is exact in bf16 and in tf32. Sums of 32 terms, in the target's order, are multiplied
    by their scale in f32 as they are added to the accumulator.

    With `rows` the k terms are rows of the matrix, 16 in a micropanel, and the n weights of each
    are columns: `words` [k / 16, 16 n · bits / 32], `scales` [k / 16, 16 · groups] with the groups
    of the n columns, which are whole groups or in one. Scales differ between terms, so that a
    weight is dequantized before it is multiplied: in f32, rounded to bf16 if `lhs` is. There are no
    splits.

    ```mlir
    %s = tile.mma_quantized %x, %words, %scales, %sum bits 4 group 32 zeros
      : vector<16x128xbf16>, vector<4x256xi32>, vector<4x128xf16>, vector<16x64xf32>
    ```
    Made by contractions with `graph.dequantize` for GPUs.
  }];
  let arguments = (ins VectorOfRankAndType<[2], [BF16, F32]>:$lhs,
                       VectorOfRankAndType<[2], [I32]>:$words,
                       VectorOfRankAndType<[2], [F16]>:$scales,
                       VectorOfRankAndType<[2], [F32]>:$accumulator,
                       I64Attr:$bits, I64Attr:$group, UnitAttr:$zeros, UnitAttr:$floats,
                       UnitAttr:$rows, DefaultValuedOptionalAttr<I64Attr, "1">:$splits);
  let results = (outs VectorOfRankAndType<[2], [F32]>:$result);
  let assemblyFormat = [{
    $lhs `,` $words `,` $scales `,` $accumulator `bits` $bits `group` $group
    (`zeros` $zeros^)? (`floats` $floats^)? (`rows` $rows^)? (`splits` $splits^)? attr-dict
    `:` type($lhs) `,` type($words) `,` type($scales) `,` type($accumulator)
  }];
  let hasVerifier = 1;
}

def Tile_DotPairsOp : Op<Tile_Dialect, "dot_pairs",
                         [Pure, AllTypesMatch<["lhs", "rhs", "accumulator", "result"]>]> {
  let summary = "adds the products of two pairs of 16-bit integers to each element";
  let description = [{
    Each element of `lhs` and `rhs` is two signed integers of 16 bits. The result is
    `accumulator` + lower × lower + upper × upper, in i32, which wraps around (`vpmaddwd`).

    ```mlir
    %d = tile.dot_pairs %sums, %scales, %dots : vector<6x16xi32>
    ```
    Made by contractions of rows of bytes with quantized weights, for CPUs.
  }];
  let arguments = (ins VectorOfAnyRankOf<[I32]>:$lhs, VectorOfAnyRankOf<[I32]>:$rhs,
                       VectorOfAnyRankOf<[I32]>:$accumulator);
  let results = (outs VectorOfAnyRankOf<[I32]>:$result);
  let assemblyFormat = "$lhs `,` $rhs `,` $accumulator attr-dict `:` type($result)";
}

def Tile_LookupOp : Op<Tile_Dialect, "lookup", [Pure]> {
  let summary = "looks elements up in a table of 16 numbers";
  let description = [{
    Element i of the result is table[index i mod 16]: only the lowest four bits of an index count.
    The table is in registers: one permutation on AVX-512, two and a blend on AVX2.

    ```mlir
    %w = tile.lookup %q in [-1.0, ..., 1.0] : vector<8x16xi32> -> vector<8x16xf32>
    ```
    Made by contractions with NF4 weights for CPUs.
  }];
  let arguments = (ins VectorOfAnyRankOf<[I32]>:$index, DenseF32ArrayAttr:$table);
  let results = (outs VectorOfAnyRankOf<[F32]>:$result);
  let assemblyFormat = "$index `in` $table attr-dict `:` type($index) `->` type($result)";
  let hasVerifier = 1;
}

#endif
